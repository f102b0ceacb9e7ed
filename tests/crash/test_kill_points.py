"""A run killed at every named point of stage, validate, promote and record, and at random moments, converges when run again."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from pathlib import Path

import pytest

from resources.config import load_config
from resources.crashpoints import POINTS
from resources.ledger import Ledger, open_ledger
from resources.opening import open_project_store
from resources.sweep import sweep_staging
from tests.support.batches import ASSET, FORMS, BytesBatch
from tests.support.child import start
from tests.support.invariants import assert_converged, assert_invariants

BATCH = {"partitions": 2, "units_each": 6, "size": 5000}
WORKER_POINTS = ("stage.open", "stage.written", "stage.part", "stage.synced", "validate.done")
MAIN_POINTS = tuple(point for point in POINTS if point not in WORKER_POINTS and point != "source.read")


def _finish(config: Path, run_id: str, faults: str = "", *, form: str = "file") -> tuple[int, dict[str, object]]:
    child = start(config, run_id, faults=faults, batch={**BATCH, "form": form})
    out, err = child.communicate(timeout=120)
    return child.returncode, json.loads(out) if child.returncode == 0 else {"err": err}


def _check_invariants(config_path: Path, form: str) -> None:
    config = load_config(config_path)
    ledger = open_ledger(config)
    batch = BytesBatch(ledger, **BATCH, form=form)
    store = open_project_store(config, ledger)
    assert_invariants(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)


def _check_converged(config_path: Path, form: str) -> Ledger:
    config = load_config(config_path)
    ledger = open_ledger(config)
    store = open_project_store(config, ledger)
    batch = BytesBatch(ledger, **BATCH, form=form)
    list(sweep_staging(ledger, store, living_runs=[], older_than_s=-1, dry_run=False))
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    assert not list(store.staged_files())
    return ledger


@pytest.mark.parametrize(
    ("point", "form", "hit"),
    [(point, form, hit) for point in MAIN_POINTS for form in FORMS for hit in (1, 2) if hit == 1 or form == "file"],
)
def test_main_process_killed(config_path: Path, point: str, form: str, hit: int) -> None:
    """The run's own process dies at a point; the next run adopts what was promoted, redoes the rest, and nothing is charged."""
    config = config_path
    code, _ = _finish(config, "first", f"{point}=kill@{hit}", form=form)
    assert code == -signal.SIGKILL, "the crash test did not crash"
    _check_invariants(config, form)
    code, outcome = _finish(config, "second", form=form)
    assert (code, outcome.get("outcome")) == (0, "complete"), outcome
    ledger = _check_converged(config, form)
    assert all(row.attempts <= 1 for row in ledger.units(asset=ASSET)), "a crash of the run was charged to a unit"


@pytest.mark.parametrize(
    ("point", "form"),
    [(point, form) for point in WORKER_POINTS for form in FORMS if (point, form == "directory") != ("stage.part", False)],
)
def test_worker_killed(config_path: Path, point: str, form: str) -> None:
    """A worker that dies takes nothing with it: the same run does the unit again, and leaves no staged file."""
    config = config_path
    code, outcome = _finish(config, "first", f"{point}=kill*2@3", form=form)
    assert (code, outcome.get("outcome")) == (0, "complete"), outcome
    assert len(list((config.parent / "faults-first").iterdir())) >= 4, "no worker was killed"
    ledger = _check_converged(config, form)
    lost = [entry for row in ledger.units(asset=ASSET) for entry in ledger.history(row.key) if entry.outcome == "LOST"]
    assert lost, "no attempt was lost"
    assert not any(entry.is_counted for entry in lost), "an innocent was charged"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["file", "directory", "event"])
def test_killed_at_random_moments(config_path: Path, form: str) -> None:
    """Killed again and again at random moments, a batch still ends with each unit done once and nothing charged."""
    config = load_config(config_path)
    ledger = open_ledger(config)
    store = open_project_store(config, ledger)
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    big = {"partitions": 10, "units_each": 30, "size": 20000, "pause_s": 0.02, "form": form}
    batch = BytesBatch(ledger, **big)
    kills = 0
    for number in range(8):
        child = start(config_path, f"run{number}", batch=big)
        try:
            child.communicate(timeout=1.0 + rng.random() * 1.2)
            break
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            kills += 1
        assert_invariants(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    assert kills >= 2, f"the crash test did not crash (seed {seed})"
    child = start(config_path, "last", batch=big)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 0, (seed, err)
    list(sweep_staging(ledger, store, living_runs=[], older_than_s=-1, dry_run=False))
    assert_converged(ledger, store, asset=ASSET, partitions=batch.partitions, works=batch.works)
    assert not list(store.staged_files()), seed
