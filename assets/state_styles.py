"""How the states of units are shown and called, on pages and maps, from best to worst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resources.units import UnitState


@dataclass(frozen=True, slots=True)
class StateStyle:
    """How a state is shown and called."""

    label: str
    colour: str
    mark: str


STYLES: Mapping[UnitState, StateStyle] = {
    UnitState.COMPLETE: StateStyle("complete", "#2a9d8f", ""),
    UnitState.DISMISSED: StateStyle("dismissed", "#7a6fa8", "-"),
    UnitState.PENDING: StateStyle("not attempted", "#aab4c2", "…"),
    UnitState.FAILED: StateStyle("failed, will be tried again", "#e9a23b", "!"),
    UnitState.QUARANTINED: StateStyle("quarantined", "#c8385a", "\u00d7"),
}
"""From best to worst."""
