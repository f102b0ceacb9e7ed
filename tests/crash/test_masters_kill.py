"""Digitization killed at named points, at random moments, run twice at once, and with 4,000 masters: one copy, one event."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from assets.digitization.copies import REFUSED
from assets.digitization.shape import COPIES, EVENTS, PREMIS
from resources.crashpoints import POINTS
from resources.reconciliation import reconcile
from resources.sweep import sweep_staging
from resources.units import AttemptOutcome, UnitState
from tests.support.master_child import start
from tests.support.master_projects import WINDOW, MasterProject
from tests.support.masters import picture, write_master, write_pages

ALL = (COPIES, EVENTS, PREMIS)
MASTERS = 6


def _filled(folder: Path, extra: str = "") -> MasterProject:
    """A project with some masters, one of them with pages, one twice, one of no use."""
    made = MasterProject(folder, extra=extra)
    for number in range(MASTERS - 1):
        made.add(f"box/{number}.tif", seed=number)
    made.add("box/twin.tif", seed=0)
    made.add("box/none.tif", content=b"no picture")
    made.arrive(write_pages(made.masters / "box/book.tif", [picture(9, 8, seed=50), picture(8, 9, seed=51)]))
    return made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of the copies, by name, of a project that nobody disturbs."""
    made = _filled(tmp_path_factory.mktemp("calm") / "project")
    finish(made, "calm")
    return copies_of(made)


def finish(made: MasterProject, run_id: str, faults: str = "") -> tuple[int, dict[str, dict[str, object]]]:
    """Run to its end; exit code and numbers."""
    child = start(made.path, run_id, faults=faults)
    out, err = child.communicate(timeout=180)
    if child.returncode == 0:
        return 0, json.loads(out)
    return child.returncode, {"error": {"text": err}}


def copies_of(made: MasterProject) -> dict[str, str]:
    """Digests of all files of copies, by place."""
    return {name: digest for name, digest in made.outputs().items() if name.startswith(COPIES)}


def assert_once(made: MasterProject, expected: dict[str, str], *, contents: int = MASTERS) -> None:
    """Every content has its one copy with the expected bytes and its four events; nothing is half there or nobody's."""
    project = made.project
    list(sweep_staging(project.ledger, project.store, living_runs=[], older_than_s=-1, dry_run=False))
    assert copies_of(made) == expected
    assert not list(project.store.staged_files())
    events = [event.event_id for event in project.ledger.events()]
    assert len(events) == len(set(events)) == 4 * contents
    for asset in ALL:
        found = reconcile(project.ledger, project.store, asset=asset, partitions=[WINDOW], deep=True)
        assert found.agrees, found.discrepancies
        for row in project.ledger.planned(asset, [WINDOW]):
            won = [entry for entry in project.ledger.history(row.key) if entry.outcome is AttemptOutcome.SUCCEEDED]
            # none where the run that promoted it died, and the next one adopted it
            assert len(won) <= 1
            assert row.state is (UnitState.QUARANTINED if row.spec["version"] == REFUSED else UnitState.COMPLETE)


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if point != "source.read"])
def test_killed_at_a_named_point(tmp_path: Path, point: str, expected: dict[str, str]) -> None:
    """Whoever reaches it dies there, the second time too; the run after that leaves one copy and one event for each key."""
    made = _filled(tmp_path / "project")
    code, _ = finish(made, "first", f"{point}=kill*2@3")
    assert list((tmp_path / "project" / "faults-first").iterdir()), "nobody was killed"
    finish(made, "second", f"{point}=kill@2")
    code, said = finish(made, "third")
    assert code == 0, said
    assert said[COPIES]["quarantined"] == 1
    assert_once(made, expected)


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_killed_at_random_moments(
    tmp_path: Path, database: str, expected: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Again and again, on either database."""
    extra = ""
    if database == "postgresql":
        url = request.getfixturevalue("postgres_url")
        extra = f'[ledger]\nurl = "{url}"\nschema_name = "masters_kill"\n'
    made = _filled(tmp_path / "project", extra)
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    kills = 0
    for number in range(10):
        child = start(made.path, f"run{number}")
        try:
            child.communicate(timeout=1.0 + rng.random() * 3)
            break
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            kills += 1
    assert kills, f"the crash test did not crash (seed {seed})"
    code, said = finish(made, "last")
    assert code == 0, (seed, said)
    assert_once(made, expected)


def test_two_runs_on_one_window_at_once(tmp_path: Path, expected: dict[str, str]) -> None:
    """With leases that nobody shares both do the work; each unit is recorded once and each event is written once."""
    made = _filled(tmp_path / "project")
    # an export keeps one name and is guarded by the lease itself: the second writer would be turned away
    children = [start(made.path, name, assets=(COPIES, EVENTS), own_leases=True) for name in ("one", "two")]
    for child in children:
        _, err = child.communicate(timeout=180)
        assert child.returncode == 0, err
    code, said = finish(made, "after")
    assert code == 0, said
    assert {said[asset]["processed"] for asset in (COPIES, EVENTS)} == {0}
    assert_once(made, expected)


@pytest.mark.slow
def test_a_batch_of_4000_stopped_at_2700_resumes_with_the_rest(tmp_path: Path) -> None:
    """Killed some 2,700 copies in, the next run does what is left and nothing else, and says so."""
    made = MasterProject(tmp_path / "project")
    box = made.masters / "box"
    box.mkdir()
    for number in range(4000):
        pixels = np.full((4, 4), number % 256, np.uint8)
        pixels[0, 0] = number // 256
        made.arrive(write_master(box / f"{number:04}.tif", pixels))
    child = start(made.path, "first", assets=(COPIES,))
    folder = made.folder / "outputs" / COPIES / WINDOW
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and child.poll() is None:
        if folder.is_dir() and sum(1 for item in folder.iterdir() if not item.name.startswith(".")) >= 2700:
            break
        time.sleep(0.05)
    assert child.poll() is None, child.communicate()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    ledger = made.project.ledger
    rows = list(ledger.planned(COPIES, [WINDOW]))
    there = sum(1 for item in folder.iterdir() if not item.name.startswith("."))
    assert 2700 <= there < 4000
    complete = sum(row.state is UnitState.COMPLETE for row in rows)
    times = {item.name: item.stat().st_mtime_ns for item in folder.iterdir() if not item.name.startswith(".")}
    child = start(made.path, "second", assets=(COPIES,))
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    said = json.loads(out)[COPIES]
    assert said["skipped"] + said["processed"] == 4000
    # outputs that were promoted and not yet recorded are adopted: recorded by the second run, and not made again
    assert complete <= said["skipped"] <= there
    assert (said["failed"], said["quarantined"], said["not_attempted"]) == (0, 0, 0)
    assert all((folder / name).stat().st_mtime_ns == before for name, before in times.items())
    found = reconcile(ledger, made.project.store, asset=COPIES, partitions=[WINDOW])
    assert found.agrees
    assert found.complete == 4000
