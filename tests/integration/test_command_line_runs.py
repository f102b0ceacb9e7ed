"""`tilewright run`: real Dagster runs from the command line, repeated, and killed together with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from pipelines.demo.imagery import invented_imagery
from pipelines.demo.scenes_project import build_project
from tests.support.master_projects import MasterProject

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pipelines.cli"]
WINDOW = "2024-06-02"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A project with few tiles, and nothing of the outer environment."""
    built = build_project(tmp_path, invented_imagery("."))
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "DAGSTER_"))}
    return outer | {
        "TILEWRIGHT_CONFIG": str(built.config),
        "TILEWRIGHT_GRID__ZOOM": "9",
        "TILEWRIGHT_SOURCE__SETTLE_S": "0",
        "TILEWRIGHT_EXECUTOR__WORKERS": "1",
    }


def run(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_window_is_run_and_run_again(environment: dict[str, str], tmp_path: Path) -> None:
    """The first run computes every unit and what is made of the window; the second computes nothing."""
    code, output, errors = run(environment, "run", "--window", WINDOW, "--json")
    assert code == 0, errors
    (found,) = json.loads(output)["windows"]
    assert found["processed"] == found["planned"] == found["complete"] > 0
    assert (tmp_path / "outputs" / "window_report" / f"{WINDOW}.html").exists()
    _, output, _ = run(environment, "run", "--window", WINDOW, "--json")
    (again,) = json.loads(output)["windows"]
    assert (again["processed"], again["skipped"]) == (0, found["planned"])
    assert "Nothing to run" in run(environment, "run", "--failed")[1]


def test_a_window_that_is_not_over_is_run_when_asked_for(tmp_path: Path) -> None:
    """Until then plan and run say that it is left alone; asked for, all of it is made, and later runs go on with it."""
    made = MasterProject(tmp_path / "project")
    made.configure(("start = 2026-01-01", 'start = 2020-01-01\nevery = "year"'))
    now = datetime.now(UTC)
    made.add("box/a.tif", arrived=now - timedelta(seconds=5))
    environment = {**os.environ, "TILEWRIGHT_CONFIG": str(made.path)}
    window = made.project.calendar.open_window(now - timedelta(seconds=5))
    assert window is not None
    for command in ("plan", "run"):
        code, output, _ = run(environment, command)
        assert (code, f"{window.key} is open until" in output) == (0, True)
    assert not made.outputs()
    code, output, errors = run(environment, "run", "--window", window.key)
    assert code == 0, errors
    assert {name.split("/")[0] for name in made.outputs()} == {
        "master_manifest",
        "access_copies",
        "premis_export",
        "batch_report",
    }
    made.add("box/b.tif", seed=2, arrived=now - timedelta(seconds=4))
    code, output, _ = run(environment, "plan")
    assert (code, "is open until" in output) == (3, False)
    assert run(environment, "run")[0] == 0
    assert len(made.event_ids()) == 8


@pytest.mark.parametrize("action", ["transient", "reject"])
def test_a_report_that_cannot_be_made_is_not_all_complete(environment: dict[str, str], tmp_path: Path, action: str) -> None:
    """Tiles that are complete are not the whole of a window: when what is made of them fails, the exit code says so."""
    faults = {"TILEWRIGHT_FAULTS": f"stage.open~window_report.html={action}*3", "TILEWRIGHT_FAULTS_DIR": str(tmp_path / "faults")}
    code, output, errors = run(environment | faults, "run", "--window", WINDOW, "--json")
    assert code == 3, errors
    assert ("report" in (json.loads(output)["problem"] or "")) == (action == "transient")
    (found,) = json.loads(output)["windows"]
    assert found["complete"] == found["planned"] > 0
    code, output, _ = run(environment, "run", "--failed")
    assert (code, "Nothing to run" in output) == ((0, False) if action == "transient" else (3, True))


@pytest.mark.parametrize("arguments", [["--window", "2031-01-01"], ["--window", "soon"], ["--tile", "9-1-1"], ["--tile", "x"]])
def test_what_does_not_exist_is_wrong_usage(environment: dict[str, str], arguments: list[str]) -> None:
    """A window outside the calendar and a tile outside the grid are refused by name, before anything runs."""
    code, _, errors = run(environment, "run", *arguments)
    assert code == 2
    assert arguments[0] in errors


def test_an_unmounted_store_stops_the_run(environment: dict[str, str], tmp_path: Path) -> None:
    """With the store gone the run ends with code 1, says what to do, and makes nothing."""
    assert run(environment, "run", "--window", WINDOW)[0] == 0
    (tmp_path / "outputs").rename(tmp_path / "elsewhere")
    (tmp_path / "outputs").mkdir()
    code, _, errors = run(environment, "run", "--window", WINDOW)
    assert code == 1
    assert "store" in errors
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_killed_command_takes_its_run_with_it(environment: dict[str, str], tmp_path: Path) -> None:
    """SIGKILL to the command ends the run and its workers, frees the leases, and running again completes the rest."""
    faults = {"TILEWRIGHT_FAULTS": "promote.ready=stop*1", "TILEWRIGHT_FAULTS_DIR": str(tmp_path / "faults")}
    command = subprocess.Popen(
        [*COMMAND, "run", "--window", WINDOW],
        cwd=ROOT,
        env=environment | faults,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        family = wait_for_a_stopped_child(command)
        assert json.loads(run(environment, "leases", "list", "--json")[1]) != []
    finally:
        command.send_signal(signal.SIGKILL)
        command.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert json.loads(run(environment, "leases", "list", "--json")[1]) == []
    code, _, errors = run(environment, "run", "--window", WINDOW)
    assert code == 0, errors
    assert run(environment, "verify", "--deep")[0] == 0


def wait_for_a_stopped_child(command: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All descendants of the command, as soon as one of them stands still at the armed point."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        family = psutil.Process(command.pid).children(recursive=True)
        if any(child.is_running() and child.status() == psutil.STATUS_STOPPED for child in family):
            return family
        assert command.poll() is None, "the command ended before the armed point"
        time.sleep(0.2)
    raise AssertionError("no child stopped at the armed point")
