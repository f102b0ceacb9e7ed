"""Reconciliation: planned units, units recorded complete, and distinct outputs that exist, compared as sets.

A pure reading of ledger and store: it changes neither. What is done about a discrepancy is the caller's to say. Running
neighbours are not mistaken for faults: what looks wrong is read again, and a RUNNING unit may have its output before its record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from resources.errors import ErrorKind
from resources.ledger import Ledger, PartitionRow, UnitRow
from resources.outputs import Outputs
from resources.store import LocalStore
from resources.units import UnitState

_PARTITIONS_AT_ONCE = 64
_UNITS_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One named disagreement between plan, ledger and store."""

    kind: ErrorKind
    unit_key: str
    output_uri: str
    message: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The three counts of a set of partitions and every way in which they disagree."""

    planned: int
    complete: int
    outputs: int
    discrepancies: tuple[Discrepancy, ...]

    @property
    def agrees(self) -> bool:
        """True when each complete unit has its own output, and no output is nobody's."""
        return not self.discrepancies and self.complete == self.outputs


def reconcile(ledger: Ledger, store: LocalStore, *, asset: str, partitions: Sequence[str], deep: bool = False) -> Reconciliation:
    """Compare the three sets for some partitions. `deep` reads every output and compares its digest.

    Raises `EnvironmentUnfit` when the store is not the one the ledger remembers: an unmounted disk is no reason to call every
    output missing.
    """
    store.check(expected=ledger.remembered_store())
    places = Outputs(store, ledger)
    planned = complete = outputs = 0
    found: list[Discrepancy] = []
    owners: dict[str, str] = {}
    for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
        names = partitions[start : start + _PARTITIONS_AT_ONCE]
        first_keys: dict[str, str] = {}
        for rows in ledger.planned_pages(asset, names, size=_UNITS_AT_ONCE):
            suspects = _compare(ledger, places, rows, deep=deep)
            doubted = _confirm(ledger, suspects)
            missing = {item.unit_key for item in doubted if item.kind is ErrorKind.OUTPUT_MISSING}
            done = [row for row in rows if row.state is UnitState.COMPLETE]
            complete += len(done)
            outputs += len({row.output_uri for row in done if row.key not in missing})
            found += doubted
            found += _shared_units(rows, owners)
            for row in rows:
                first_keys.setdefault(row.partition or "", row.key)
        counted = list(ledger.partition_rows(asset, names=names))
        planned += sum(row.planned for row in counted)
        found += _shared_keys(counted, first_keys)
    return Reconciliation(planned, complete, outputs, tuple(found))


def _compare(ledger: Ledger, outputs: Outputs, rows: Sequence[UnitRow], *, deep: bool) -> list[Discrepancy]:
    listings = outputs.listings()
    sizes = listings.sizes(row.output_uri for row in rows)
    found = []
    expected: set[str] = set()
    for row in rows:
        size = sizes.get(row.output_uri)
        if row.state in (UnitState.COMPLETE, UnitState.RUNNING):
            expected.add(row.output_uri)
        if row.state is not UnitState.COMPLETE:
            continue
        if size is None:
            found.append(_say(ErrorKind.OUTPUT_MISSING, row, "is recorded complete and does not exist"))
        elif size != row.output_size:
            found.append(_say(ErrorKind.OUTPUT_DIFFERS, row, f"has {size} bytes; recorded were {row.output_size}"))
        elif deep and (fault := _fault_of_content(outputs, row)) is not None:
            found.append(fault)
    places = {_place(row.output_uri): row.key for row in rows}
    nearby = listings.beside(row.output_uri for row in rows)
    strays = [uri for uri in nearby if uri not in expected and _place(uri) in places]
    recorded = ledger.recorded_outputs(strays)
    found += [
        Discrepancy(
            ErrorKind.OUTPUT_UNRECORDED, places[_place(uri)], uri, f"{uri} exists and no unit is recorded to have made it"
        )
        for uri in sorted(set(strays) - recorded)
    ]
    return found


def _fault_of_content(outputs: Outputs, row: UnitRow) -> Discrepancy | None:
    try:
        digest = outputs.at(row.output_uri).digest(row.output_uri)
    except FileNotFoundError:
        return _say(ErrorKind.OUTPUT_MISSING, row, "is recorded complete and vanished while it was looked at")
    except OSError as error:
        return _say(ErrorKind.OUTPUT_DIFFERS, row, f"cannot be read ({error.strerror})")
    if digest == row.output_digest:
        return None
    return _say(ErrorKind.OUTPUT_DIFFERS, row, f"has another digest than the recorded {row.output_digest}")


def _confirm(ledger: Ledger, suspects: Iterable[Discrepancy]) -> list[Discrepancy]:
    """Read again what looks wrong: a unit that another run has moved on meanwhile is no discrepancy."""
    suspects = list(suspects)
    if not suspects:
        return []
    now = {row.key: row for row in ledger.units(keys=[item.unit_key for item in suspects])}
    stands = []
    for item in suspects:
        row = now.get(item.unit_key)
        state = row.state if row is not None else None
        unrecorded = item.kind is ErrorKind.OUTPUT_UNRECORDED
        if (
            unrecorded
            and row is not None
            and row.output_uri == item.output_uri
            and state in (UnitState.RUNNING, UnitState.COMPLETE)
        ):
            continue
        if not unrecorded and state is not UnitState.COMPLETE:
            continue
        stands.append(item)
    return stands


def _shared_keys(partitions: Iterable[PartitionRow], first_keys: Mapping[str, str]) -> list[Discrepancy]:
    """A key that is not unique: more units were planned than there are keys."""
    return [
        Discrepancy(
            ErrorKind.DUPLICATE_KEY,
            first_keys.get(row.partition, ""),
            "",
            f"partition {row.partition} was planned with {row.planned} units and has {row.units} distinct keys: "
            "a unit key is not unique",
        )
        for row in partitions
        if row.units != row.planned
    ]


def _shared_units(rows: Sequence[UnitRow], owners: dict[str, str]) -> list[Discrepancy]:
    """A unit that two partitions hold: two destinations were given one key."""
    found = []
    for row in rows:
        owner = owners.setdefault(row.key, row.partition or "")
        if owner != row.partition:
            message = f"unit {row.key[:16]} is planned in {owner} and in {row.partition}: a unit key is not unique"
            found.append(Discrepancy(ErrorKind.DUPLICATE_KEY, row.key, row.output_uri, message))
    return found


def _say(kind: ErrorKind, row: UnitRow, what: str) -> Discrepancy:
    return Discrepancy(kind, row.key, row.output_uri, f"{row.output_uri} {what} (unit {row.key[:16]})")


def _place(uri: str) -> str:
    """Where an output belongs, whatever its key: its folder and the first part of its name."""
    folder, _, name = uri.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"
