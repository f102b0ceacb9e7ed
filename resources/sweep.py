"""Sweep: removes abandoned staging files, and superseded outputs whose time is over. Dry run first.

A staging file is abandoned when the run that named it holds no lease any more and it is older than the bound: a living writer's
file is never touched, however slow. A superseded output is removed only after the live references have been read again, just
before the deletion.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from resources.leases import Leases
from resources.ledger import Ledger, UnitRow
from resources.staging import remove_staged
from resources.store import ASIDE_PREFIX, LocalStore, run_tag
from resources.trees import is_directory_name, size_of


@dataclass(frozen=True, slots=True)
class Swept:
    """One file that was, or in a dry run would be, removed."""

    uri: str
    size_bytes: int
    why: str


class Keep(StrEnum):
    """Why a staging file stays."""

    ALIVE = "alive"
    YOUNG = "young"


def holding_runs(ledger: Ledger, leases: Leases) -> set[str]:
    """Ids of runs that hold a lease now: their staging files are alive, however old."""
    holders = ledger.holders()
    held = leases.held(holder.partition_id for holder in holders)
    return {holder.run_id for holder in holders if holder.partition_id in held}


def sweep_staging(
    ledger: Ledger,
    store: LocalStore,
    *,
    living_runs: Collection[str],
    older_than_s: float,
    dry_run: bool,
    kept: Counter[Keep] | None = None,
) -> Iterator[Swept]:
    """Remove abandoned staging files. `living_runs`: ids of runs that still hold a lease. Those that stay are counted in `kept`.

    After a crash: whatever is left is found by the next sweep. Raises `EnvironmentUnfit` when the store is another's.
    """
    store.check(expected=ledger.remembered_store())
    living = {run_tag(run_id) for run_id in living_runs}
    bound = ledger.clock().timestamp() - older_than_s
    for staged in store.staged_files():
        if staged.run_tag in living or staged.mtime > bound:
            if kept is not None:
                kept[Keep.ALIVE if staged.run_tag in living else Keep.YOUNG] += 1
            continue
        try:
            size = size_of(staged.path)
        except FileNotFoundError:
            continue
        if not dry_run:
            remove_staged(staged.path)
        yield Swept(str(staged.path.relative_to(store.root)), size, "abandoned staging file")


def set_aside_files(store: LocalStore) -> Iterator[str]:
    """Where outputs lie that did not verify and were set aside, below the store's root. A person removes them; no sweep does."""
    for folder, folders, names in os.walk(store.root):
        found = [name for name in [*folders, *names] if name.startswith(ASIDE_PREFIX)]
        folders[:] = [name for name in folders if not name.startswith(".") and not is_directory_name(name)]
        yield from (str(Path(folder, name).relative_to(store.root)) for name in sorted(found))


def sweep_superseded(
    ledger: Ledger, store: LocalStore, leases: Leases, *, older_than_days: float, dry_run: bool
) -> Iterator[Swept]:
    """Remove outputs of units that were superseded or retired longer ago than the bound, and forget that they were recorded.

    Rows stay: what they say happened did. It is done under the leases of the window's partitions, so that no run adopts an output
    while it goes; a window on which a run works is left for the next time. The record goes first: a crash in between leaves an
    output nobody claims, which a reconciliation finds, never a record without its output.
    """
    store.check(expected=ledger.remembered_store())
    before = ledger.clock() - timedelta(days=older_than_days)
    found: dict[tuple[str, str], list[UnitRow]] = {}
    for row in ledger.superseded_outputs(before=before):
        found.setdefault((row.asset, row.window), []).append(row)
    for (asset, window), rows in found.items():
        if dry_run:
            yield from (_swept(row, size) for row in rows if (size := store.size(row.output_uri)) is not None)
            continue
        ids = ledger.partition_ids(asset, [row.partition for row in ledger.partition_rows(asset, window)])
        with leases.hold(ids) as lease:
            if lease.held_elsewhere:
                continue
            for row in rows:
                size = store.size(row.output_uri)
                if ledger.forget_output(row.key, before=before):
                    store.remove(row.output_uri)
                    yield _swept(row, size or 0)


def _swept(row: UnitRow, size_bytes: int) -> Swept:
    return Swept(row.output_uri, size_bytes, f"{row.state.value.lower()} unit {row.key[:16]}")
