"""What a pipeline would plan now, from its source and configuration: the ground of `tilewright plan`. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assets.survey import LeftOut
from resources.ledger import UnitRow
from resources.units import PlannedUnit


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
