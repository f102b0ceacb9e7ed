"""What a pipeline would plan now, from its source and configuration: the ground of `tilewright plan`. Changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.survey import LeftOut
from resources.ledger import UnitRow
from resources.units import PlannedUnit

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class WindowOutlook:
    """One window: how many things its source holds, and the units that would be planned from them."""

    window: str
    inputs: int
    units: Iterable[PlannedUnit]


@dataclass(frozen=True, slots=True)
class Outlook:
    """All windows asked for, and how to read them.

    `place` names what a unit is for, whatever its key: a unit there with another key takes the place of the old one. `explain`
    says why a key changed, from the old ingredients and the new; `size_of` guesses the bytes of an output.
    """

    windows: Iterable[WindowOutlook]
    place: Callable[[PlannedUnit | UnitRow], Hashable]
    explain: Callable[[Mapping[str, Any], Mapping[str, Any]], str]
    size_of: Callable[[PlannedUnit], float]
    left_out: tuple[LeftOut, ...] = ()


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of ingredients, by its own name and in order: "settings.psnr_db: none became 40"."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    pairs = {name: (before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())}
    return [f"{name}: {_word(was)} became {_word(now)}" for name, (was, now) in pairs.items() if was != now]


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            yield from _leaves({str(number): item for number, item in enumerate(value, 1)}, f"{above}{name}.")
        else:
            # as the ledger gives it back
            yield f"{above}{name}", list(value) if isinstance(value, tuple) else value


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"{value[:12]}..." if _DIGEST.fullmatch(value) else value
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
