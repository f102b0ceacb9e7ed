"""Fields by their labels: the words behind a label, on its line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from assets.inspections.extraction import Line
from assets.inspections.rules import FieldRule, value_of
from resources.config_inspections import ENGLISH_MONTHS
from resources.errors import ErrorKind, UnitRejected


def find_fields(
    lines: Sequence[Line], rules: Sequence[FieldRule], *, skip: Collection[int] = (), months: Sequence[str] = ENGLISH_MONTHS
) -> Mapping[str, str | float]:
    """The values of all fields that the report shows, in the order of the rules. `skip`: positions of lines of tables.

    Raises `UnitRejected`: MISSING_FIELD, INVALID_FIELD (also for a field that is said twice, and differently),
    VALUE_OUT_OF_RANGE.
    """
    found: dict[str, str | float] = {}
    missing = []
    for rule in rules:
        texts = list(dict.fromkeys(find_texts(lines, rule.label, skip=skip)))
        values = list(dict.fromkeys(value_of(text, rule, months=months) for text in texts))
        if len(values) > 1:
            shown = " and ".join(repr(text) for text in texts[:3])
            raise UnitRejected(f"field {rule.name}: found {shown}; allowed: one value", kind=ErrorKind.INVALID_FIELD)
        if values:
            found[rule.name] = values[0]
        elif rule.is_required:
            missing.append(f"{rule.name} (label {rule.label!r})")
    if missing:
        raise UnitRejected(f"the report lacks {', '.join(missing)}", kind=ErrorKind.MISSING_FIELD)
    return found


def find_texts(lines: Sequence[Line], label: str, *, skip: Collection[int] = ()) -> Iterator[str]:
    """What stands behind a label, wherever a cell begins with it: after its colon, else in the next cell of the line."""
    within = re.compile(rf"(?:{label})\s*[:=]\s*(?P<value>\S.*)", re.IGNORECASE)
    alone = re.compile(rf"(?:{label})\s*[:=]?", re.IGNORECASE)
    for at, line in enumerate(lines):
        if at in skip:
            continue
        for place, cell in enumerate(line.cells):
            if found := within.fullmatch(cell.text):
                yield " ".join(found["value"].split())
            elif alone.fullmatch(cell.text) and place + 1 < len(line.cells):
                yield " ".join(line.cells[place + 1].text.split())
