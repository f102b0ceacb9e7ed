"""The invariants that hold whatever happened, written once and asserted after every kind of test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from resources.keys import digest_file
from resources.ledger import Ledger
from resources.reconciliation import reconcile
from resources.store import LocalStore
from resources.units import AttemptOutcome, UnitOfWork, UnitState


def assert_invariants(
    ledger: Ledger, store: LocalStore, *, asset: str, partitions: Sequence[str], works: dict[str, UnitOfWork]
) -> None:
    """Final names are whole; COMPLETE has its output with the recorded digest; one output and one success for each unit."""
    rows = list(ledger.planned(asset, partitions))
    complete = [row for row in rows if row.state is UnitState.COMPLETE]
    for row in complete:
        path = store.path(row.output_uri)
        assert path.is_file(), f"{row.output_uri} is recorded and absent"
        assert digest_file(path) == row.output_digest, f"{row.output_uri} is not what was recorded"
        assert path.stat().st_size == row.output_size
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
    assert sorted(store.walk(asset)) == sorted(work.unit.output_uri for work in works.values())
