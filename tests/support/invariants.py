"""The invariants that hold whatever happened, written once and asserted after every kind of test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from resources.ledger import Ledger
from resources.outputs import Outputs
from resources.reconciliation import reconcile
from resources.row_tables import is_row_uri, row_uri
from resources.store import LocalStore
from resources.units import AttemptOutcome, UnitOfWork, UnitState


def assert_invariants(
    ledger: Ledger, store: LocalStore, *, asset: str, partitions: Sequence[str], works: dict[str, UnitOfWork]
) -> None:
    """Final names are whole; COMPLETE has its output with the recorded digest; one output and one success for each unit."""
    rows = list(ledger.planned(asset, partitions))
    complete = [row for row in rows if row.state is UnitState.COMPLETE]
    outputs = Outputs(store, ledger)
    for row in complete:
        place = outputs.at(row.output_uri)
        assert place.size(row.output_uri) == row.output_size, f"{row.output_uri} is recorded and absent, or of another size"
        assert place.digest(row.output_uri) == row.output_digest, f"{row.output_uri} is not what was recorded"
    written = _written_rows(ledger)
    assert written == {row.output_uri: row.key for row in complete if is_row_uri(row.output_uri)}, "a row without its record"
    assert max(Counter(row.output_uri for row in complete).values(), default=1) == 1
    by_uri = {work.unit.output_uri: work for work in works.values()}
    for uri in store.walk(asset):
        by_uri[uri].validate(store.path(uri))  # raises when a final name holds a partial output
    for row in rows:
        won = [entry for entry in ledger.history(row.key) if entry.outcome is AttemptOutcome.SUCCEEDED]
        assert len(won) <= 1, f"{row.key} succeeded {len(won)} times"


def assert_converged(
    ledger: Ledger, store: LocalStore, *, asset: str, partitions: Sequence[str], works: dict[str, UnitOfWork]
) -> None:
    """Every planned unit is complete, the three counts agree, and no output is nobody's."""
    assert_invariants(ledger, store, asset=asset, partitions=partitions, works=works)
    assert {row.state for row in ledger.planned(asset, partitions)} == {UnitState.COMPLETE}
    found = reconcile(ledger, store, asset=asset, partitions=partitions, deep=True)
    assert found.agrees, found.discrepancies
    assert found.planned == found.complete == found.outputs == len(works)
    expected = sorted(work.unit.output_uri for work in works.values())
    assert sorted([*store.walk(asset), *_written_rows(ledger)]) == expected


def _written_rows(ledger: Ledger) -> dict[str, str]:
    """URI -> unit key of every row that is an output; each is there once."""
    found = [(row_uri("preservation_events", event.event_id), event.unit_key) for event in ledger.events()]
    found += [(row_uri("inspection_records", record.site, record.period), record.unit_key) for record in ledger.records()]
    assert max(Counter(uri for uri, _ in found).values(), default=1) == 1
    return dict(found)
