"""What the engine does with every kind of failure, on a real ledger, a real store and real worker processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from resources import trees
from resources.errors import ErrorKind
from resources.executor import LocalExecutor
from resources.keys import digest_file
from resources.ledger import RunRow, UnitRow
from resources.ledger.schema import attempts, units
from resources.opening import utc_now
from resources.reconciliation import reconcile
from resources.units import AttemptOutcome, RunOutcome, UnitOfWork, UnitState
from tests.support.batches import ASSET, BytesBatch
from tests.support.invariants import assert_converged, assert_invariants
from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An engine with quick retries."""
    return Shop(tmp_path)


def test_one_failure_never_stops_another(shop: Shop) -> None:
    """Rejected, unknown, oversized, dying and failing units each get their own end; all others are complete."""
    behaviours = {(0, 0): "transient", (0, 1): "reject", (0, 2): "unknown", (1, 0): "memory", (1, 1): "die"}
    batch = BytesBatch(shop.ledger, partitions=2, units_each=6, behaviours=behaviours)
    report = shop.engine.run(batch, run_id="one")
    assert report.summary.outcome is RunOutcome.PARTIAL
    found = {
        row.tile: (row.state, row.error_kind) for row in shop.ledger.units(asset=ASSET) if row.state is not UnitState.COMPLETE
    }
    assert found == {
        "0-0-0": (UnitState.FAILED, ErrorKind.SOURCE_UNAVAILABLE),
        "0-0-1": (UnitState.QUARANTINED, ErrorKind.CONTRACT_VIOLATED),
        "0-0-2": (UnitState.QUARANTINED, ErrorKind.UNCLASSIFIED),
        "0-1-0": (UnitState.QUARANTINED, ErrorKind.MEMORY_EXCEEDED),
        "0-1-1": (UnitState.FAILED, ErrorKind.WORKER_LOST),
    }
    assert report.summary.processed == 7
    assert_invariants(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_unknown_failure_is_tried_once(shop: Shop) -> None:
    """What is not known to be transient is not retried by itself."""
    shop.engine.run(BytesBatch(shop.ledger, partitions=1, behaviours={(0, 0): "unknown"}), run_id="one")
    assert shop.outcomes("0-0-0") == [AttemptOutcome.FAILED]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_pool_is_replaced(shop: Shop) -> None:
    """A worker that garbles the pipe which all share costs nobody a try: the same run does all in a new pool."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=12, behaviours={(0, 3): "garble"})
    report = shop.engine.run(batch, run_id="one")
    assert report.summary.outcome is RunOutcome.COMPLETE
    lost = [entry for row in shop.ledger.units(asset=ASSET) for entry in shop.ledger.history(row.key) if entry.outcome == "LOST"]
    assert lost, "the pool did not break"
    assert not any(entry.is_counted for entry in lost)
    (shop.store.path(f"{ASSET}/w1") / ".garbled").unlink()
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_attempts_count_over_runs_up_to_the_bound(shop: Shop) -> None:
    """Three tries in a run, five in all, then quarantine with one dead letter; a sixth never happens."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, behaviours={(0, 0): "transient"})
    for number in range(4):
        shop.engine.run(batch, run_id=f"run{number}")
    assert shop.outcomes("0-0-0") == [AttemptOutcome.FAILED] * 5
    (letter,) = shop.ledger.dead_letters()
    assert (letter.tile, letter.attempts, letter.kind) == ("0-0-0", 5, ErrorKind.SOURCE_UNAVAILABLE)


def test_who_dies_with_others_at_work_is_not_charged_and_is_tried_alone(shop: Shop) -> None:
    """Which of them killed the worker is proven only alone: there it is charged, and the others are done by the same run."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=10, pause_s=0.05, behaviours={(0, 3): "die"})
    shop.engine.run(batch, run_id="one")
    rows = {row.tile: row for row in shop.ledger.units(asset=ASSET)}
    assert rows["0-0-3"].state is UnitState.FAILED
    history = shop.ledger.history(rows["0-0-3"].key)
    assert {entry.outcome for entry in history} == {AttemptOutcome.LOST}
    assert [entry.is_counted for entry in history] == [False, True, True, True]
    others = [row for tile, row in rows.items() if tile != "0-0-3"]
    assert {row.state for row in others} == {UnitState.COMPLETE}
    assert not any(entry.is_counted for row in others for entry in shop.ledger.history(row.key) if entry.outcome == "LOST")


def test_unit_that_hangs_is_ended_at_its_time_bound(tmp_path: Path) -> None:
    """A unit that hangs costs its time bound, not the run."""
    shop = Shop(tmp_path)
    shop.engine.executor_factory = lambda: _executor(shop, unit_time_s=1.0)
    batch = BytesBatch(shop.ledger, partitions=1, units_each=3, behaviours={(0, 1): "hang"})
    report = shop.engine.run(batch, run_id="one")
    assert (report.summary.processed, report.summary.failed) == (2, 1)
    assert next(row.error_kind for row in shop.ledger.units(state=UnitState.FAILED)) == ErrorKind.TIMEOUT


def _executor(shop: Shop, **changes: float) -> LocalExecutor:
    return LocalExecutor(shop.config.executor.model_copy(update=changes))


def test_stop_voids_the_attempt_and_ends_the_run(shop: Shop) -> None:
    """Refused credentials are nobody's fault: the run stops, no unit is charged or quarantined, the reason is said."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=40, pause_s=0.01, behaviours={(0, 0): "unfit"})
    report = shop.engine.run(batch, run_id="one")
    assert report.summary.outcome is RunOutcome.STOPPED
    assert "credentials were refused" in report.summary.reason
    assert report.summary.not_attempted > 0
    assert shop.state("0-0-0") is UnitState.PENDING
    assert shop.outcomes("0-0-0") == [AttemptOutcome.VOID]
    assert not list(shop.ledger.dead_letters())


@pytest.mark.parametrize("tries", [3, 5], ids=["before the bound", "at the bound"])
def test_unwell_source_opens_the_breaker(tmp_path: Path, tries: int) -> None:
    """When every unit of a source exhausts its tries, the run ends partial, charges nobody, and puts the source's units off."""
    shop = Shop(tmp_path)
    shop.engine.retry = shop.engine.retry.model_copy(update={"breaker_units": 3, "later_base_s": 600.0, "tries_in_run": tries})
    behaviours = {(0, j): "transient" for j in range(12)}
    batch = BytesBatch(shop.ledger, partitions=2, units_each=12, behaviours=behaviours, sources=2)
    report = shop.engine.run(batch, run_id="one")
    rows = list(shop.ledger.units(asset=ASSET))
    ill = [row for row in rows if row.source == "source0"]
    assert report.summary.outcome is RunOutcome.PARTIAL
    assert "source0" in report.summary.reason
    assert {row.state for row in rows if row.source == "source1"} == {UnitState.COMPLETE}
    assert {(row.state, row.attempts) for row in ill} == {(UnitState.PENDING, 0)}
    assert sum(row.attempt for row in ill) < 12 * tries, "the breaker did not stop the work"
    assert all(row.retry_at is not None and row.retry_at > utc_now() + timedelta(seconds=60) for row in ill)
    assert not list(shop.ledger.dead_letters())


def test_only_due_leaves_alone_what_is_put_off(shop: Shop) -> None:
    """A run of the sensor does not try a unit before its time; a run by hand does."""
    shop.engine.retry = shop.engine.retry.model_copy(update={"later_base_s": 600.0, "tries_in_run": 1})
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, behaviours={(0, 0): "transient"})
    shop.engine.run(batch, run_id="one")
    shop.engine.run(batch, run_id="two", only_due=True)
    assert len(shop.outcomes("0-0-0")) == 1
    shop.engine.run(batch, run_id="three")
    assert len(shop.outcomes("0-0-0")) == 2


def test_repaired_unit_completes_after_replay(shop: Shop) -> None:
    """Replay asks again through the ordinary path; history stays, and the round is a new one."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2, behaviours={(0, 0): "reject:broken"})
    shop.engine.run(batch, run_id="one")
    (letter,) = shop.ledger.dead_letters()
    (shop.store.root / "bytes" / "broken.repaired").touch()
    assert shop.ledger.replay([letter.id], who="a tester") == 1
    report = shop.engine.run(batch, run_id="two")
    assert (report.summary.processed, report.summary.skipped) == (1, 1)
    assert shop.outcomes("0-0-0") == [AttemptOutcome.FAILED, AttemptOutcome.SUCCEEDED]
    assert not list(shop.ledger.dead_letters())


def test_one_bad_input_is_one_dead_letter(shop: Shop) -> None:
    """Units that read the same bad input share one dead letter, which is the input's."""
    behaviours = {(0, j): "input" for j in range(4)}
    batch = BytesBatch(shop.ledger, partitions=1, units_each=5, behaviours=behaviours)
    shop.engine.run(batch, run_id="one")
    letters = list(shop.ledger.dead_letters())
    assert [(letter.subject, letter.subject_key) for letter in letters] == [("input", "bad-input")]
    assert shop.state("0-0-4") is UnitState.COMPLETE
    states = {shop.state(f"0-0-{j}") for j in range(4)}
    assert states == {UnitState.QUARANTINED}, "held units are quarantined, without letters of their own"


def test_deleted_output_is_done_again_and_named(shop: Shop) -> None:
    """An output deleted behind the ledger's back is a discrepancy by name, and only that unit is done again."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=5)
    shop.engine.run(batch, run_id="one")
    victim = next(iter(shop.store.walk(ASSET)))
    shop.store.path(victim).unlink()
    report = shop.engine.run(batch, run_id="two")
    assert (report.summary.processed, report.summary.skipped) == (1, 4)
    assert [(item.kind, item.output_uri) for item in report.discrepancies] == [(ErrorKind.OUTPUT_MISSING, victim)]
    assert_invariants_again(shop, batch)


def assert_invariants_again(shop: Shop, batch: BytesBatch) -> None:
    """Every output exists as recorded."""
    for row in shop.ledger.planned(ASSET, batch.partitions):
        batch.works[row.key].validate(shop.store.path(row.output_uri))


def test_tampered_output_is_kept_aside_and_done_again(shop: Shop) -> None:
    """An output of another size than recorded is moved aside, never overwritten or deleted, and the unit is done again."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=3)
    shop.engine.run(batch, run_id="one")
    victim = shop.store.path(next(iter(shop.store.walk(ASSET))))
    victim.write_bytes(b"something else")
    report = shop.engine.run(batch, run_id="two")
    assert report.summary.processed == 1
    aside = [path.read_bytes() for path in victim.parent.glob(".aside-*")]
    assert aside == [b"something else"]
    assert_invariants_again(shop, batch)


def test_deep_look_names_an_output_that_cannot_be_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that no longer gives an output's bytes is a discrepancy by name, and no end of the look at all others."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=3)
    shop.engine.run(batch, run_id="one")
    victim, gone, _ = shop.store.walk(ASSET)

    def read(path: Path) -> str:
        if path == shop.store.path(victim):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if path == shop.store.path(gone):
            path.unlink()
        return digest_file(path)

    monkeypatch.setattr(trees, "digest_file", read)
    found = reconcile(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, deep=True)
    kinds = {item.output_uri: item.kind for item in found.discrepancies}
    assert kinds == {victim: ErrorKind.OUTPUT_DIFFERS, gone: ErrorKind.OUTPUT_MISSING}


def test_output_without_record_is_adopted(shop: Shop) -> None:
    """An output that was promoted and never recorded is verified and adopted, not computed again."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2)
    work = next(iter(batch.works.values()))
    path = shop.store.path(work.unit.output_uri)
    path.parent.mkdir(parents=True)
    work.work(path)
    before = path.stat().st_ino
    report = shop.engine.run(batch, run_id="one")
    assert shop.outcomes(work.unit.tile or "") == []
    assert path.stat().st_ino == before
    assert (report.summary.processed, report.summary.skipped) == (1, 1)
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_wrong_file_under_a_final_name_is_set_aside(shop: Shop) -> None:
    """A file that does not verify under a unit's final name is kept aside, and the unit is done."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=2)
    work = next(iter(batch.works.values()))
    path = shop.store.path(work.unit.output_uri)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a fi")
    report = shop.engine.run(batch, run_id="one")
    assert report.summary.processed == 2
    assert [item.kind for item in report.discrepancies] == [ErrorKind.OUTPUT_UNRECORDED]
    assert [item.read_bytes() for item in path.parent.glob(".aside-*")] == [b"half a fi"]
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_interrupted_run_voids_what_was_running(shop: Shop) -> None:
    """A cancelled run charges nobody, leaves no staged file and no unit RUNNING."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=50, pause_s=0.1)
    timer = threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process that runs tests beside others ignores it
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            shop.engine.run(batch, run_id="one")
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, ours)
    rows = list(shop.ledger.units(asset=ASSET))
    assert {row.state for row in rows} <= {UnitState.PENDING, UnitState.COMPLETE}
    assert sum(row.attempts for row in rows if row.state is UnitState.PENDING) == 0
    assert not list(shop.store.staged_files())
    run = shop.ledger.run("one")
    assert run is not None
    assert run.outcome is RunOutcome.STOPPED


def test_output_of_a_unit_that_left_the_plan_meanwhile_is_kept(shop: Shop) -> None:
    """A plan that changes under a run is no discrepancy: what was made for the old one is found complete when that returns."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=12, pause_s=0.2)

    class Changing(BytesBatch):
        def work(self, rows: Sequence[UnitRow]) -> Iterator[UnitOfWork]:
            for number, work in enumerate(super().work(rows)):
                if number == 8:
                    BytesBatch(shop.ledger, partitions=1, units_each=12, version="2")
                yield work

    changing = Changing(shop.ledger, partitions=1, units_each=12, pause_s=0.2)
    assert shop.engine.run(changing, run_id="one").summary.not_attempted == 12
    found = reconcile(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions)
    assert found.discrepancies == ()
    made = set(shop.store.walk(ASSET))
    assert made
    shop.ledger.write_plan(ASSET, batch.plans)
    complete = {row.output_uri for row in shop.ledger.planned(ASSET, batch.partitions) if row.state is UnitState.COMPLETE}
    assert complete == made
    shop.engine.run(batch, run_id="two")
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


@pytest.mark.parametrize("method", ["sync_folders", "staging_path"])
def test_store_that_fails_the_run_itself_stops_it_and_leaves_nothing_open(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A disk that fills up between two steps of the main process is a stop: nothing RUNNING, nothing staged, nobody charged."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=8)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shop.store, method, fail)
        report = shop.engine.run(batch, run_id="one")
    assert report.summary.outcome is RunOutcome.STOPPED
    assert report.stopped_by is not None
    assert report.stopped_by.kind is ErrorKind.DISK_FULL
    rows = list(shop.ledger.units(asset=ASSET))
    assert {(row.state, row.attempts, row.suspect) for row in rows} == {(UnitState.PENDING, 0, False)}
    assert not list(shop.store.staged_files())
    shop.engine.run(batch, run_id="two")
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_run_that_fails_by_itself_says_why(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the engine's own ends the run with its reason on record; it is not taken for a person's interruption."""
    batch = BytesBatch(shop.ledger, partitions=1)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(shop.store, "sync_folders", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        shop.engine.run(batch, run_id="one")
    run = shop.ledger.run("one")
    assert run is not None
    assert run.outcome is RunOutcome.STOPPED
    assert "a bug" in str((run.summary or {})["reason"])


def test_what_was_running_when_a_run_vanished_runs_alone(shop: Shop) -> None:
    """A unit that ends whole runs is found out: what was RUNNING then is run one at a time by the next run, the rest as ever."""
    batch = BytesBatch(shop.ledger, partitions=1, units_each=6)
    keys = sorted(batch.works)
    now = shop.ledger.clock()
    shop.ledger.begin_run(RunRow("gone", ASSET, tuple(batch.partitions), 1, "here", shop.engine.boot_id, now))
    shop.ledger.start_attempts("gone", keys[:2])
    report = shop.engine.run(batch, run_id="next")
    assert report.summary.processed == 6
    with shop.ledger.reading() as connection:
        rows = connection.execute(
            select(units.c.key, attempts.c.is_alone).join(attempts).where(attempts.c.run_id == "next").order_by(units.c.key)
        ).all()
    assert [tuple(row) for row in rows] == [(key, key in keys[:2]) for key in keys]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 2 MB, for a store that fills up."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small filesystem needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_stops_and_the_rest_is_done_once_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    """A full disk ends the run early, quarantines nothing and leaves no partial output; with room the rest is done."""
    shop = Shop(tmp_path / "project", store_uri=str(small_disk / "outputs"))
    batch = BytesBatch(shop.ledger, partitions=1, units_each=60, size=60_000)
    report = shop.engine.run(batch, run_id="one")
    assert report.summary.outcome is RunOutcome.STOPPED
    assert report.stopped_by is not None
    assert report.stopped_by.kind is ErrorKind.DISK_FULL
    assert not list(shop.ledger.dead_letters())
    assert_invariants(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    shop.engine.run(batch, run_id="two")
    assert_converged(shop.ledger, shop.store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_scattered_failures_do_not_make_a_source_unwell(shop: Shop) -> None:
    """Failures among successes are no row of failures, also when many outcomes come back at once."""
    shop.engine.retry = shop.engine.retry.model_copy(update={"breaker_units": 3, "tries_in_run": 1, "later_base_s": 600.0})
    behaviours = {(0, j): "transient" for j in range(0, 120, 10)}
    batch = BytesBatch(shop.ledger, partitions=1, units_each=120, behaviours=behaviours)
    report = shop.engine.run(batch, run_id="one")
    assert (report.summary.processed, report.summary.failed, report.summary.not_attempted) == (108, 12, 0)
    assert report.summary.reason == ""
