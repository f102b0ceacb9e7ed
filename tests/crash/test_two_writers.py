"""Two runs at one unit, a late writer, a vanished store, a key that is not unique: none leaves a wrong output or record."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from resources.config import load_config
from resources.errors import EnvironmentUnfit, ErrorKind
from resources.ledger import Ledger, open_ledger
from resources.opening import open_engine, open_leases, open_project_store
from resources.reconciliation import reconcile
from resources.store import LocalStore
from resources.sweep import sweep_staging
from resources.units import AttemptOutcome, PartitionPlan, PlannedUnit
from tests.support.batches import ASSET, FORMS, BytesBatch
from tests.support.child import start, write_config
from tests.support.invariants import assert_converged, assert_invariants


def _open(config_path: Path) -> tuple[Ledger, LocalStore]:
    config = load_config(config_path)
    ledger = open_ledger(config)
    return ledger, open_project_store(config, ledger)


def _await(condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"waited {limit_s} s for {what}"
        time.sleep(0.02)


def _written(ledger: Ledger, store: LocalStore) -> list[object]:
    """Every output of the store by inode and time, and every row with its time: another writer would show."""
    found = ((uri, store.path(uri).stat()) for uri in store.walk(ASSET))
    return [*((uri, stat.st_ino, stat.st_mtime_ns) for uri, stat in found), *ledger.events(), *ledger.records()]


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("form", FORMS)
def test_two_writers_of_the_same_units(config_path: Path, form: str) -> None:
    """Two runs that do not see each other's leases give one output, one record and one success for each unit."""
    ledger, store = _open(config_path)
    shape = {"partitions": 2, "units_each": 40, "size": 5000, "pause_s": 0.005, "form": form}
    batch = BytesBatch(ledger, **shape)
    children = [start(config_path, f"run{i}", batch=shape, own_leases=True) for i in range(2)]
    for child in children:
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
    assert_invariants(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    runs = {entry.run_id for row in ledger.units(asset=ASSET) for entry in ledger.history(row.key) if entry.what == "attempt"}
    assert runs == {"run0", "run1"}, "the race did not race: one run did everything"
    child = start(config_path, "after", batch=shape)
    child.communicate(timeout=120)
    list(sweep_staging(ledger, store, living_runs=[], older_than_s=-1, dry_run=False))
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_second_run_leaves_held_partitions_alone(config_path: Path) -> None:
    """A run that finds its partitions held spends no attempt and says who holds them."""
    ledger, _ = _open(config_path)
    shape = {"partitions": 1, "units_each": 4}
    first = start(config_path, "first", faults="attempt.recorded=stop", batch=shape)
    _await(lambda: _is_stopped(first.pid), "the first run to stop")
    config = load_config(config_path)
    engine = open_engine(config, ledger=ledger, store=open_project_store(config, ledger), leases=open_leases(config, ledger))
    report = engine.run(BytesBatch(ledger, **shape), run_id="second")
    first.kill()
    first.communicate()
    assert report.summary.not_attempted == 4
    assert list(report.held_elsewhere) == ["w1|p0000"]
    assert "first" in report.held_elsewhere["w1|p0000"]
    assert report.settled == ()
    assert {entry.run_id for row in ledger.units(asset=ASSET) for entry in ledger.history(row.key)} == {"first"}


@pytest.mark.parametrize(
    ("point", "form"),
    [
        *((point, "file") for point in ("attempt.recorded", "promote.ready", "promote.linked", "promote.synced", "record.open")),
        *((point, "directory") for point in ("promote.ready", "promote.linked")),
        *((point, form) for point in ("promote.ready", "record.open") for form in ("event", "record")),
    ],
)
def test_late_writer_changes_nothing(config_path: Path, point: str, form: str) -> None:
    """A run stopped in the middle of a write, overtaken by another and then resumed, changes neither output nor record."""
    ledger, store = _open(config_path)
    shape = {"partitions": 1, "units_each": 3, "size": 3000, "form": form}
    batch = BytesBatch(ledger, **shape)
    late = start(config_path, "late", faults=f"{point}=stop*1", batch=shape)
    _await(lambda: _is_stopped(late.pid), "the late writer to stop")
    other = start(config_path, "other", batch=shape, own_leases=True)
    _, err = other.communicate(timeout=60)
    assert other.returncode == 0, err
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    outputs = _written(ledger, store)
    records = [(row.key, row.run_id, row.completed_at, row.attempt) for row in ledger.units(asset=ASSET)]
    os.kill(late.pid, signal.SIGCONT)
    late.communicate(timeout=60)
    assert outputs == _written(ledger, store)
    assert records == [(row.key, row.run_id, row.completed_at, row.attempt) for row in ledger.units(asset=ASSET)]
    list(sweep_staging(ledger, store, living_runs=[], older_than_s=-1, dry_run=False))
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    assert not list(store.staged_files())


def test_unmounted_store_stops_the_run(tmp_path: Path) -> None:
    """An empty folder where the store was is an unmounted disk: the run stops, computes nothing and charges nobody."""
    config_path = write_config(tmp_path)
    ledger, store = _open(config_path)
    shape = {"partitions": 1, "units_each": 3}
    start(config_path, "first", batch=shape).communicate(timeout=60)
    before = [(row.key, row.state, row.attempt) for row in ledger.units(asset=ASSET)]
    shutil.move(store.root, tmp_path / "unmounted")
    store.root.mkdir()
    with pytest.raises(EnvironmentUnfit) as stopped:
        open_project_store(load_config(config_path), ledger)
    assert stopped.value.kind is ErrorKind.STORE_MISSING
    child = start(config_path, "second", batch=shape)
    _, err = child.communicate(timeout=60)
    assert child.returncode != 0
    assert "mount the right disk" in err
    assert before == [(row.key, row.state, row.attempt) for row in ledger.units(asset=ASSET)]
    assert list(store.root.iterdir()) == []


def test_store_vanishing_during_the_run_stops_it(tmp_path: Path) -> None:
    """A store that goes away in the middle of a run ends it early; nothing is quarantined, and the rest is done later."""
    config_path = write_config(tmp_path)
    ledger, store = _open(config_path)
    shape = {"partitions": 2, "units_each": 60, "pause_s": 0.05}
    batch = BytesBatch(ledger, **shape)
    child = start(config_path, "first", batch=shape)
    _await(lambda: len(list(store.walk(ASSET))) > 3, "some outputs")
    store.root.rename(tmp_path / "unmounted")
    store.root.mkdir()
    out, err = child.communicate(timeout=120)
    assert '"stopped"' in out, (out, err)
    assert list(store.root.iterdir()) == []
    assert not list(ledger.dead_letters())
    store.root.rmdir()
    (tmp_path / "unmounted").rename(store.root)
    start(config_path, "second", batch=shape).communicate(timeout=120)
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def test_key_that_is_not_unique_is_named(tmp_path: Path) -> None:
    """Two planned units that share one key are a discrepancy by name, not a quiet success."""
    config_path = write_config(tmp_path)
    ledger, store = _open(config_path)
    key = "a" * 64
    twins = tuple(PlannedUnit(key, "bytes", "w1", f"bytes/w1/0-0-{i}.{key[:16]}.bin", tile=f"0-0-{i}") for i in range(2))
    ledger.write_plan(ASSET, [PartitionPlan(ASSET, "w1|p0000", "w1", twins, tile="p0000")])
    found = reconcile(ledger, store, asset=ASSET, partitions=["w1|p0000"])
    assert [item.kind for item in found.discrepancies] == [ErrorKind.DUPLICATE_KEY]
    assert not found.agrees


def test_broken_key_in_two_partitions_is_named(tmp_path: Path) -> None:
    """A key shared by units of two partitions is found too."""
    config_path = write_config(tmp_path)
    ledger, store = _open(config_path)
    key = "b" * 64
    plans = [
        PartitionPlan(
            ASSET,
            f"w1|p000{i}",
            "w1",
            (PlannedUnit(key, "bytes", "w1", f"bytes/w1/0-{i}-0.{key[:16]}.bin", tile=f"0-{i}-0"),),
            tile=f"p000{i}",
        )
        for i in range(2)
    ]
    ledger.write_plan(ASSET, plans)
    found = reconcile(ledger, store, asset=ASSET, partitions=["w1|p0000", "w1|p0001"])
    assert ErrorKind.DUPLICATE_KEY in [item.kind for item in found.discrepancies]


def test_lost_reply_of_a_record_is_no_second_success(config_path: Path) -> None:
    """A run killed right after its commit leaves the unit complete; the next run skips it."""
    ledger, store = _open(config_path)
    shape = {"partitions": 1, "units_each": 1}
    batch = BytesBatch(ledger, **shape)
    start(config_path, "first", faults="record.committed=kill", batch=shape).communicate(timeout=60)
    start(config_path, "second", batch=shape).communicate(timeout=60)
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    (row,) = ledger.units(asset=ASSET)
    outcomes = [(entry.run_id, entry.outcome) for entry in ledger.history(row.key) if entry.what == "attempt"]
    assert outcomes == [("first", AttemptOutcome.SUCCEEDED)]


def test_window_output_replaced_and_not_recorded_is_made_again(tmp_path: Path) -> None:
    """A window output killed between replace and record does not pass for the older one when the plan goes back to that."""
    config_path = write_config(tmp_path)
    ledger, store = _open(config_path)
    shape = {"partitions": 1, "units_each": 1, "replaces": True}
    start(config_path, "a", batch={**shape, "version": "1"}).communicate(timeout=60)
    killed = start(config_path, "b", faults="record.open=kill", batch={**shape, "version": "2"})
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    start(config_path, "a-again", batch={**shape, "version": "1"}).communicate(timeout=60)
    batch = BytesBatch(ledger, **shape, version="1")
    (work,) = batch.works.values()
    work.validate(store.path(work.unit.output_uri))
    found = reconcile(ledger, store, asset=ASSET, partitions=batch.partitions, deep=True)
    assert (found.agrees, found.complete) == (True, 1), found
