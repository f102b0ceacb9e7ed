"""What follows from a discrepancy: the unit is done again, and what nobody recorded is adopted later or set aside, never
deleted.

The order matters: a differing output is moved away before its unit returns to PENDING, so that the next run does not take it
for a finished output that was never recorded. A crash in between leaves a record without an output, which the next look finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from resources.errors import ErrorKind
from resources.ledger import Ledger
from resources.outputs import Outputs
from resources.reconciliation import Discrepancy
from resources.store import LocalStore
from resources.units import RUNNABLE_STATES, UnitState

_REDONE = (ErrorKind.OUTPUT_MISSING, ErrorKind.OUTPUT_DIFFERS)


@dataclass(frozen=True, slots=True)
class Amends:
    """What was done about discrepancies: units that are PENDING again, and outputs moved out of the way."""

    returned: int = 0
    set_aside: tuple[str, ...] = ()


def make_amends(ledger: Ledger, store: LocalStore, discrepancies: Iterable[Discrepancy]) -> Amends:
    """Return units with a missing or differing output to PENDING; set aside what differs, and what no unit will adopt.

    After a crash: whatever was not done is found as a discrepancy again.
    """
    found = list(discrepancies)
    outputs = Outputs(store, ledger)
    aside = [item.output_uri for item in found if item.kind is ErrorKind.OUTPUT_DIFFERS]
    aside += _unwanted(ledger, [item.output_uri for item in found if item.kind is ErrorKind.OUTPUT_UNRECORDED], found)
    moved = []
    for uri in aside:
        place = outputs.at(uri)
        if place.size(uri) is not None:
            place.set_aside(uri)
            moved.append(uri)
    returned = 0
    for kind in _REDONE:
        keys = [item.unit_key for item in found if item.kind is kind]
        if keys:
            returned += ledger.return_to_pending(keys, reason=_REASON[kind], kind=kind)
    return Amends(returned, tuple(moved))


_REASON = {
    ErrorKind.OUTPUT_MISSING: "its output was recorded and is missing",
    ErrorKind.OUTPUT_DIFFERS: "its output differs from what was recorded",
}


def _unwanted(ledger: Ledger, uris: Sequence[str], found: Sequence[Discrepancy]) -> list[str]:
    """Unrecorded outputs that are not the output of a unit which may still run: the next run would not look at them."""
    keys = {item.unit_key for item in found if item.output_uri in set(uris)}
    may_adopt = (*RUNNABLE_STATES, UnitState.RUNNING)
    wanted = {row.output_uri for row in ledger.units(keys=keys) if row.state in may_adopt}
    return [uri for uri in uris if uri not in wanted]
