"""How a value is written and what it means: dates, numbers with units, choices, periods. The same in every locale."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from assets.inspections.periods import normal_period
from resources.config_inspections import ENGLISH_MONTHS
from resources.errors import ErrorKind, UnitRejected

_TOKENS = re.compile(r"YYYY|MMMM|MMM|MM|M|DD|D")
_DIGITS = {"YYYY": r"(?P<year>[0-9]{4})", "MM": r"(?P<month>[0-9]{2})", "M": r"(?P<month>[0-9]{1,2})"}
_DAYS = {"DD": r"(?P<day>[0-9]{2})", "D": r"(?P<day>[0-9]{1,2})"}
_NUMBER = re.compile(r"(?P<sign>[+\u2212-]?)\s*(?P<digits>[0-9][0-9., '\u2019\u00a0\u202f]*)(?P<unit>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One field: how it is found and what it may be. `units` says what one of another unit is in `unit`."""

    name: str
    label: str
    type: str = "text"
    is_required: bool = True
    date_formats: tuple[str, ...] = ("YYYY-MM-DD",)
    decimal: str = "."
    unit: str | None = None
    units: tuple[tuple[str, float], ...] = ()
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()


def value_of(text: str, rule: FieldRule, *, months: Sequence[str] = ENGLISH_MONTHS) -> str | float:
    """What `text` means by `rule`: text, a number in the rule's unit, a date as YYYY-MM-DD, or a choice as configured.

    Raises `UnitRejected`: INVALID_FIELD or VALUE_OUT_OF_RANGE.
    """
    if rule.type == "number":
        return _number(text, rule)
    if rule.type == "date":
        return _date(text, rule, months)
    if rule.type == "choice":
        for choice in rule.choices:
            if _plain(choice) == _plain(text):
                return choice
        raise _invalid(rule, text, f"one of {', '.join(rule.choices)}")
    return text


def _date(text: str, rule: FieldRule, months: Sequence[str]) -> str:
    for form in rule.date_formats:
        found = re.fullmatch(_date_pattern(form, months), text.strip(), re.IGNORECASE)
        if found is None:
            continue
        parts = found.groupdict()
        named = parts.get("named")
        month = int(parts["month"]) if named is None else _month(named, months)
        try:
            return date(int(parts["year"]), month, int(parts["day"])).isoformat()
        except ValueError:
            continue
    raise _invalid(rule, text, f"a date like {' or '.join(rule.date_formats)}")


def _date_pattern(form: str, months: Sequence[str]) -> str:
    names = {"MMMM": months, "MMM": [name[:3] for name in months]}
    pieces, at = [], 0
    for token in _TOKENS.finditer(form):
        pieces.append(_spaced(form[at : token.start()]))
        named = names.get(token[0])
        if named is not None:
            pieces.append(f"(?P<named>{'|'.join(re.escape(name) for name in named)})")
        else:
            pieces.append({**_DIGITS, **_DAYS}[token[0]])
        at = token.end()
    return f"{''.join(pieces)}{_spaced(form[at:])}"


def _spaced(text: str) -> str:
    return r"\s+".join(re.escape(piece) for piece in re.split(r"\s+", text))


def _month(named: str, months: Sequence[str]) -> int:
    folded = named.casefold()
    return next(at for at, name in enumerate(months, start=1) if folded in (name.casefold(), name[:3].casefold()))


def _number(text: str, rule: FieldRule) -> float:
    found = _NUMBER.fullmatch(text.strip())
    allowed = f"a number with decimal sign {rule.decimal!r}" + (f" in {', '.join(_units(rule))}" if rule.unit else "")
    if found is None:
        raise _invalid(rule, text, allowed)
    digits = _digits(found["digits"], rule.decimal)
    if digits is None:
        raise _invalid(rule, text, allowed)
    value = -Decimal(digits) if found["sign"] in ("-", "\u2212") else Decimal(digits)
    unit = found["unit"].strip()
    if unit:
        factor = _units(rule).get(unit)
        if factor is None:
            raise _invalid(rule, text, allowed)
        value *= factor
    number = float(value)
    if not math.isfinite(number):
        raise _invalid(rule, text, allowed)
    if (rule.least is not None and number < rule.least) or (rule.most is not None and number > rule.most):
        least = "any" if rule.least is None else f"{rule.least:g}"
        most = "any" if rule.most is None else f"{rule.most:g}"
        unit = f" {rule.unit}" if rule.unit else ""
        raise UnitRejected(
            f"field {rule.name}: found {text!r}, which is {number:g}{unit}; allowed: {least} to {most}",
            kind=ErrorKind.VALUE_OUT_OF_RANGE,
        )
    return number + 0.0 if number else 0.0


def _units(rule: FieldRule) -> dict[str, Decimal]:
    # by the shortest text of the factor, so that 0.1 is a tenth
    known = {unit: Decimal(repr(factor)) for unit, factor in rule.units}
    return {rule.unit: Decimal(1), **known} if rule.unit else known


def _digits(text: str, decimal: str) -> str | None:
    """Plain digits with a point, or None. Groups are of three, by one sign throughout that is not the decimal one."""
    whole, sign, part = text.strip().partition(decimal)
    if sign and not re.fullmatch("[0-9]+", part):
        return None
    groups = re.fullmatch("[0-9]{1,3}(?:(?P<by>[., '\u2019\u00a0\u202f])[0-9]{3}(?:(?P=by)[0-9]{3})*)?|[0-9]+", whole)
    if groups is None or groups["by"] == decimal:
        return None
    plain = re.sub("[^0-9]", "", whole)
    return f"{plain}.{part}" if sign else plain


def _invalid(rule: FieldRule, found: str, allowed: str) -> UnitRejected:
    return UnitRejected(f"field {rule.name}: found {found[:200]!r}; allowed: {allowed}", kind=ErrorKind.INVALID_FIELD)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def is_same_period(found: str, listed: str, *, months: Sequence[str] = ENGLISH_MONTHS) -> bool:
    """Whether two spellings mean one period: equal in its one form, but for letter case where that is free text."""
    return normal_period(found, months=months).casefold() == normal_period(listed, months=months).casefold()
