"""Rebuilding a lost ledger: plans from the source, completion from outputs that verify.

An output is believed when it opens, holds the unit key that the plan gives, and has the digest that the window's catalogue
recorded, where that lists it. What outputs cannot tell (attempts, dead letters, decisions) is in the ledger's backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

from assets.catalogue import catalogue_uri
from assets.rebuilt import Rebuilt, RebuiltAsset
from assets.scenes_project import ScenesProject
from assets.scenes_shape import TILES
from assets.tiles import TilesBatch
from assets.window_outputs import catalogue_batch, report_batch, zones_batch
from resources.engine import Batch
from resources.errors import ErrorKind, TilewrightError, UnitRejected
from resources.keys import digest_file
from resources.ledger import UnitRow
from resources.staging import remove_staged
from resources.store import LocalStore
from resources.units import Completion, Made, UnitOfWork, UnitState, as_made

_GROUP = 500


def rebuild(project: ScenesProject) -> Rebuilt:
    """Plan every window from the source and record the outputs that verify as complete.

    Raises `EnvironmentUnfit` when source or store is not there. After a crash: do it again, it goes on.
    """
    windows = [window.key for window in project.calendar.windows(project.ledger.clock())]
    if not windows:
        return Rebuilt((), ())
    run_id = f"rebuild-{uuid4()}"
    unverified: list[str] = []
    names = [f"{window}|{tile}" for window in windows for tile in project.grid.partitions]
    tiles = TilesBatch(project, names, run_id=run_id)
    assets = [_restore(project, tiles, _catalogued(project.store, windows), unverified)]
    rows = list(project.ledger.planned(TILES, names))
    batches: list[Batch] = [catalogue_batch(project, windows, rows), report_batch(project, windows, rows)]
    if project.config.zones is not None:
        batches.append(zones_batch(project, windows, rows))
    assets += [_restore(project, batch, {}, unverified) for batch in batches]
    return Rebuilt(tuple(assets), tuple(unverified))


def _restore(project: ScenesProject, batch: Batch, recorded: Mapping[str, str], unverified: list[str]) -> RebuiltAsset:
    store, ledger = project.store, project.ledger
    outputs = restored = known = absent = 0
    for rows in _groups(ledger.planned(batch.asset, batch.partitions)):
        known += sum(row.state is UnitState.COMPLETE for row in rows)
        wanted = [row for row in rows if row.state is not UnitState.COMPLETE]
        there = [work for work in batch.work(wanted) if store.size(work.unit.output_uri) is not None]
        absent += len(wanted) - len(there)
        outputs += len(there) + len(rows) - len(wanted)
        completions = [found for work in there if (found := _verified(store, work, recorded, unverified)) is not None]
        store.sync_folders(found.output_uri for found in completions)
        restored += len(ledger.adopt(completions))
    return RebuiltAsset(batch.asset, outputs, restored, known, absent)


def _verified(store: LocalStore, work: UnitOfWork, recorded: Mapping[str, str], unverified: list[str]) -> Completion | None:
    uri = work.unit.output_uri
    path = store.path(uri)
    try:
        work.validate(path)
        digest = digest_file(path)
        made = as_made(work.recover(path)) if work.recover is not None else _made_again(store, work, digest)
        found = Completion(
            work.unit.key, 0, uri, digest, path.stat().st_size, made.metrics, rows=made.rows, revision=made.revision
        )
    except (TilewrightError, OSError, ValueError, RuntimeError) as error:
        # window outputs keep one name: an older one there is out of date, not damaged, and is made again by the next run
        if not work.replaces:
            unverified.append(f"{uri}: {error}")
        return None
    if recorded.get(found.unit_key, found.digest) != found.digest:
        # left in its place it would be adopted by the next run, which knows no catalogue
        aside = store.set_aside(uri)
        was = recorded[found.unit_key]
        unverified.append(f"{uri}: has digest {found.digest[:12]}..., the catalogue recorded {was[:12]}...; kept as {aside.name}")
        return None
    return found


def _made_again(store: LocalStore, work: UnitOfWork, digest: str) -> Made:
    """What is said of an output that does not hold it itself: it is made again aside, and must be the same bytes."""
    staged = store.staging_path(work.unit.output_uri, run_id="rebuild")
    try:
        made = as_made(work.work(staged))
        if digest_file(staged) != digest:
            raise UnitRejected("made again it has other bytes", kind=ErrorKind.OUTPUT_DIFFERS, unit_key=work.unit.key)
        return made
    finally:
        remove_staged(staged)


def _catalogued(store: LocalStore, windows: Sequence[str]) -> dict[str, str]:
    """Unit key -> digest, as the catalogues that can be read recorded them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, str] = {}
    for window in windows:
        path = store.path(catalogue_uri(window))
        try:
            table = pq.read_table(path, columns=["tilewright:unit_key", "tilewright:digest"])
        except (OSError, pa.ArrowException):
            continue
        found.update(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))
    return found


def _groups(rows: Iterable[UnitRow]) -> Iterator[list[UnitRow]]:
    group: list[UnitRow] = []
    for row in rows:
        group.append(row)
        if len(group) == _GROUP:
            yield group
            group = []
    if group:
        yield group
