"""The engine on outputs of each form: files, directories, events, records. What holds of one holds of all."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from resources.amends import make_amends
from resources.errors import ErrorKind
from resources.outputs import Outputs
from resources.reconciliation import reconcile
from resources.sweep import sweep_staging, sweep_superseded
from resources.units import AttemptOutcome, RunOutcome, UnitState
from tests.support.batches import ASSET, FORMS, BytesBatch
from tests.support.invariants import assert_converged, assert_invariants
from tests.support.shops import Shop

ROWS = ("event", "record")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An engine with quick retries."""
    return Shop(tmp_path)


def _assert_converged(shop: Shop, batch: BytesBatch) -> None:
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    assert not list(shop.store.staged_files())


def _assert_made_good(shop: Shop, batch: BytesBatch) -> None:
    found = reconcile(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, deep=True)
    assert (found.agrees, found.complete) == (True, len(batch.works)), found.discrepancies
    assert not list(shop.store.staged_files())


@pytest.mark.parametrize("form", FORMS)
def test_second_pass_does_nothing(shop: Shop, form: str) -> None:
    """Outputs of every form are made once; a second run skips all and writes no row and no byte."""
    batch = BytesBatch(shop.ledger, partitions=3, units_each=5, form=form)
    assert shop.engine.run(batch, run_id="one").summary.processed == 15
    _assert_converged(shop, batch)
    before = list(shop.ledger.events()), list(shop.ledger.records())
    report = shop.engine.run(BytesBatch(shop.ledger, partitions=3, units_each=5, form=form), run_id="two")
    assert (report.summary.processed, report.summary.skipped) == (0, 15)
    assert (list(shop.ledger.events()), list(shop.ledger.records())) == before
    assert report.discrepancies == ()
    assert len(before[0]) + len(before[1]) == (15 if form in ROWS else 0)


@pytest.mark.parametrize("form", ["event", "record"])
def test_a_deleted_row_is_written_again(shop: Shop, form: str) -> None:
    """A row deleted behind the ledger's back is a discrepancy by name, and only that unit is done again."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=4, form=form)
    shop.engine.run(batch, run_id="one")
    victim = next(shop.ledger.units(asset=ASSET))
    table = {"event": "preservation_events", "record": "inspection_records"}[form]
    with shop.ledger.writing() as connection:
        connection.execute(text(f"DELETE FROM {table} WHERE output_uri = :uri"), {"uri": victim.output_uri})
    found = reconcile(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions)
    assert [(item.kind, item.output_uri) for item in found.discrepancies] == [(ErrorKind.OUTPUT_MISSING, victim.output_uri)]
    report = shop.engine.run(batch, run_id="two")
    assert (report.summary.processed, report.summary.skipped) == (1, 3)
    assert [item.kind for item in report.discrepancies] == [ErrorKind.OUTPUT_MISSING]
    _assert_made_good(shop, batch)


def test_a_changed_event_is_kept_aside_and_written_again(shop: Shop) -> None:
    """An event that somebody changed is found by a deep look and kept; the event is written again as it was."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, form="event")
    shop.engine.run(batch, run_id="one")
    victim = next(shop.ledger.units(asset=ASSET))
    with shop.ledger.writing() as connection:
        change = "UPDATE preservation_events SET outcome = 'failure' WHERE output_uri = :uri"
        connection.execute(text(change), {"uri": victim.output_uri})
    found = reconcile(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, deep=True)
    assert [(item.kind, item.output_uri) for item in found.discrepancies] == [(ErrorKind.OUTPUT_DIFFERS, victim.output_uri)]
    amends = make_amends(shop.ledger, shop.store, found.discrepancies)
    assert (amends.returned, amends.set_aside) == (1, (victim.output_uri,))
    assert shop.engine.run(batch, run_id="two").summary.processed == 1
    assert {event.outcome for event in shop.ledger.events()} == {"success"}
    with shop.ledger.reading() as connection:
        kept = connection.execute(text("SELECT why, said FROM row_history")).all()
    assert [(row.why, '"failure"' in row.said) for row in kept] == [("set aside", True)]
    _assert_made_good(shop, batch)


def test_the_revision_that_was_found_is_recorded(shop: Shop) -> None:
    """The revision that work found takes the place of the planned one, through worker and record."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, form="record")
    shop.engine.run(batch, run_id="one")
    assert {row.revision for row in shop.ledger.units(asset=ASSET)} == {"found"}


def test_a_row_that_cannot_be_kept_is_one_units_failure(shop: Shop) -> None:
    """A unit that gives no row, or one that its table cannot hold, is quarantined by itself; the others are complete."""
    behaviours = {(0, 0): "rowless", (0, 1): "bad row"}
    batch = BytesBatch(shop.ledger, partitions=1, units_each=4, behaviours=behaviours, form="event")
    report = shop.engine.run(batch, run_id="one")
    assert report.summary.outcome is RunOutcome.COMPLETE_WITH_QUARANTINE
    found = {row.tile: row.error_kind for row in shop.ledger.units(asset=ASSET, state=UnitState.QUARANTINED)}
    assert found == {"0-0-0": ErrorKind.INVALID_OUTPUT, "0-0-1": ErrorKind.CONTRACT_VIOLATED}
    assert_invariants(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    assert not list(shop.store.staged_files())


@pytest.mark.parametrize("behaviour", ["file", "empty", "link"])
def test_a_directory_must_be_one(shop: Shop, behaviour: str) -> None:
    """A file in place of a directory, an empty one, and one that holds a link are not what was planned."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, behaviours={(0, 0): behaviour}, form="directory")
    shop.engine.run(batch, run_id="one")
    found = {row.tile: row.error_kind for row in shop.ledger.units(asset=ASSET, state=UnitState.QUARANTINED)}
    assert found == {"0-0-0": ErrorKind.INVALID_OUTPUT}
    assert len(list(shop.store.walk(ASSET))) == 1
    assert not list(shop.store.staged_files())


def test_a_page_that_vanished_is_found(shop: Shop) -> None:
    """A directory output that lost a page is moved aside whole and made again; one with a changed page is found by digest."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=3, form="directory")
    shop.engine.run(batch, run_id="one")
    first, second, _ = (shop.store.path(uri) for uri in shop.store.walk(ASSET))
    next(first.rglob("*.bin")).unlink()
    changed = next(second.rglob("*.bin"))
    changed.write_bytes(changed.read_bytes()[::-1])
    found = reconcile(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, deep=True)
    assert [item.kind for item in found.discrepancies] == [ErrorKind.OUTPUT_DIFFERS] * 2
    make_amends(shop.ledger, shop.store, found.discrepancies)
    assert len([name for name in os.listdir(first.parent) if name.startswith(".aside-")]) == 2
    assert shop.engine.run(batch, run_id="two").summary.processed == 2
    _assert_made_good(shop, batch)


def test_a_directory_without_record_is_adopted_only_whole(shop: Shop) -> None:
    """A promoted directory that nobody recorded is adopted if it verifies, and set aside whole if it does not."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, form="directory")
    good, bad = (shop.store.path(work.unit.output_uri) for work in batch.works.values())
    for work, path in zip(batch.works.values(), (good, bad), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        work.work(path)
    next(bad.rglob("*.bin")).unlink()
    inode = good.stat().st_ino
    report = shop.engine.run(batch, run_id="one")
    assert (report.summary.processed, report.summary.skipped) == (1, 1)
    assert good.stat().st_ino == inode
    assert [item.kind for item in report.discrepancies] == [ErrorKind.OUTPUT_UNRECORDED]
    _assert_converged(shop, batch)


def test_removal_of_a_directory_is_one_act(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that dies half-way leaves no partial directory under a final name, and what is left is swept."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=1, form="directory")
    shop.engine.run(batch, run_id="one")
    (uri,) = shop.store.walk(ASSET)
    with monkeypatch.context() as patched:
        patched.setattr("resources.store.remove_content", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            shop.store.remove(uri)
    assert shop.store.size(uri) is None
    assert list(shop.store.walk(ASSET)) == []
    (swept,) = sweep_staging(shop.ledger, shop.store, living_runs=[], older_than_s=-1, dry_run=False)
    assert swept.size_bytes > 0
    assert not list(shop.store.staged_files())


@pytest.mark.parametrize("form", FORMS)
def test_superseded_outputs_are_swept_and_rows_stay(shop: Shop, form: str) -> None:
    """Files and directories of another version are removed after their time; rows of it are kept."""
    old = BytesBatch(shop.ledger, partitions=1, units_each=2, form=form)
    shop.engine.run(old, run_id="one")
    new = BytesBatch(shop.ledger, partitions=1, units_each=2, form=form, version="2")
    shop.engine.run(new, run_id="two")
    later = shop.ledger.clock() + timedelta(days=30)
    shop.ledger.clock = lambda: later
    (partition,) = shop.ledger.partition_ids(ASSET, old.partitions).values()
    with shop.engine.leases.hold({"busy": partition}):
        assert list(sweep_superseded(shop.ledger, shop.store, shop.engine.leases, older_than_days=7, dry_run=False)) == []
    list(sweep_superseded(shop.ledger, shop.store, shop.engine.leases, older_than_days=7, dry_run=False))
    outputs = Outputs(shop.store, shop.ledger)
    sizes = outputs.listings().sizes([work.unit.output_uri for work in [*old.works.values(), *new.works.values()]])
    assert len(sizes) == (4 if form in ROWS else 2)
    assert set(sizes) >= {work.unit.output_uri for work in new.works.values()}


def test_promote_of_a_directory_never_replaces_without_renameat2(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the filesystem has no rename without replace, a directory's name is still given once."""
    monkeypatch.setattr("resources.store._libc", object())
    batch = BytesBatch(shop.ledger, partitions=1, units_each=1, form="directory")
    (work,) = batch.works.values()
    uri = work.unit.output_uri
    staged = [shop.store.staging_path(uri, run_id=run) for run in ("a", "b")]
    for path in staged:
        work.work(path)
    assert [shop.store.promote(path, uri) for path in staged] == [True, False]
    shutil.rmtree(staged[1])
    work.validate(shop.store.path(uri))


def test_a_source_that_names_its_time_is_left_alone_until_then(shop: Shop) -> None:
    """A failure that says when to come back is tried again after that: in this run if that is soon, in a later one if not."""
    now = shop.ledger.clock()
    shop.ledger.clock = lambda: now
    behaviours = {(0, 0): "later", (0, 1): "soon"}
    batch = BytesBatch(shop.ledger, partitions=1, units_each=3, behaviours=behaviours)
    shop.engine.run(batch, run_id="one")
    rows = {row.tile: row for row in shop.ledger.units(asset=ASSET)}
    assert rows["0-0-0"].retry_at == now + timedelta(seconds=3600)
    assert shop.outcomes("0-0-0") == [AttemptOutcome.FAILED]
    assert shop.outcomes("0-0-1") == [AttemptOutcome.FAILED] * 3


def test_one_partition_of_many_units_is_read_in_pages(shop: Shop) -> None:
    """A partition that holds more units than are read at once gives each of them once, in pages."""
    batch = BytesBatch(shop.ledger, partitions=3, units_each=70)
    pages = list(shop.ledger.planned_pages(ASSET, [*batch.partitions, batch.partitions[0]], size=50))
    assert [len(page) for page in pages] == [50] * 4 + [10]
    assert [row.key for page in pages for row in page] == [work.unit.key for work in batch.works.values()]
    assert list(shop.ledger.planned_pages(ASSET, ["w1|none"], size=50)) == []
