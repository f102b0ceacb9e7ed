"""The command line over a whole project: plan, forecast and rebuilding, with real tiles."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from assets import project as projects
from assets.project import Project, open_project
from assets.tiles import TilesBatch
from assets.window_outputs import catalogue_batch, report_batch, zones_batch
from pipelines.cli.application import app
from pipelines.demo.imagery import invented_imagery
from pipelines.demo.scenes_project import DemoProject, build_project
from resources.units import UnitState

ROOT = Path(__file__).parents[2]
SMALLER = {"TILEWRIGHT_GRID__ZOOM": "10", "TILEWRIGHT_GRID__TILE_PX": "128", "TILEWRIGHT_SOURCE__SETTLE_S": "0"}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoProject:
    for name, value in SMALLER.items():
        monkeypatch.setenv(name, value)
    found = build_project(tmp_path, invented_imagery("."))
    monkeypatch.setenv("TILEWRIGHT_CONFIG", str(found.config))
    return found


ROWS = """
for row in open_project().ledger.units(state=UnitState.COMPLETE):
    made = row.output_uri, row.output_digest, row.output_size, row.metrics_json
    print((row.asset, row.key, *made, row.spec_json, row.inputs_json))
"""


def complete_rows() -> list[str]:
    """What a new process reads of every COMPLETE unit, without when and by which run it was made."""
    code = "from assets.project import open_project; from resources.units import UnitState\n" + ROWS
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def run_everything(project: Project) -> None:
    windows = [window.key for window in project.calendar.windows(project.ledger.clock())]
    names = [f"{window}|{tile}" for window in windows for tile in project.grid.partitions]
    project.engine(inline=True).run(TilesBatch(project, names, run_id="first"), run_id=str(uuid4()))
    rows = list(project.ledger.planned("tiles", names))
    for batch in (catalogue_batch, zones_batch, report_batch):
        project.engine(inline=True).run(batch(project, windows, rows), run_id=str(uuid4()))


def run(*arguments: str) -> tuple[int, str]:
    """In a process of its own: nothing of an earlier ledger is left in memory."""
    command = [sys.executable, "-m", "pipelines.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def forecast() -> tuple[int, dict[str, object]]:
    """`tilewright plan` in this process, with the environment as it is now."""
    projects._open.clear()
    done = CliRunner().invoke(app, ["plan", "--json"], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def test_a_plan_says_beforehand_what_a_change_would_redo(built: DemoProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version redoes its product and no other, a metatile size redoes nothing, a late scene redoes the tiles it touches."""
    code, found = forecast()
    assert code == 3
    everything = len(found["redos"])
    assert {redo["why"] for redo in found["redos"]} == {"never computed"}
    run_everything(open_project())
    assert forecast()[0] == 0

    monkeypatch.setenv("TILEWRIGHT_PRODUCTS__GREENNESS__VERSION", "2")
    _, found = forecast()
    assert {(redo["product"], redo["why"]) for redo in found["redos"]} == {("greenness", "version: 1 became 2")}
    assert len(found["redos"]) == everything / 2
    monkeypatch.delenv("TILEWRIGHT_PRODUCTS__GREENNESS__VERSION")

    monkeypatch.setenv("TILEWRIGHT_GRID__METATILE", "1")
    assert forecast()[1]["redos"] == []
    monkeypatch.delenv("TILEWRIGHT_GRID__METATILE")

    built.add_late_scene()
    code, found = forecast()
    redos = found["redos"]
    assert code == 3
    assert 0 < len(redos) < everything
    assert {redo["window"] for redo in redos} == {"2024-06-02"}
    assert all("rmnp-late_20240602T170700 is new" in redo["why"] for redo in redos)


def test_a_lost_ledger_is_rebuilt_from_outputs(built: DemoProject) -> None:
    """Every COMPLETE row comes back equal (key, output, digest, size, metrics, ingredients), save that of a damaged output.

    That one is named, because its bytes are not those that the catalogue recorded, and is done again.
    """
    project = open_project()
    run_everything(project)
    before = complete_rows()
    damaged = next(project.ledger.units(asset="tiles", product="greenness", state=UnitState.COMPLETE))
    path = project.store.path(damaged.output_uri)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0")
    shutil.rmtree(built.config.parent / "state")

    code, output = run("rebuild-ledger", "--json")
    assert code == 3
    (said,) = json.loads(output)["unverified"]
    assert damaged.output_uri in said
    assert not path.exists(), "the next run would adopt it"
    assert json.loads(run("unit", damaged.key, "--json")[1])["unit"]["state"] == "PENDING"

    path.write_bytes(whole)
    code, output = run("rebuild-ledger", "--json")
    assert code == 0, output
    assert complete_rows() == before
    assert json.loads(output)["assets"][0]["restored"] == 1
    assert run("verify", "--deep")[0] == 0
