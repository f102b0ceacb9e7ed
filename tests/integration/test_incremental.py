"""Only what changed is done again: late, replaced and withdrawn scenes, settings, versions and bad scenes, on the main job."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import rasterio
from typer.testing import CliRunner

from assets.planning import explain_change
from assets.stock import list_scenes, refresh_window
from pipelines.cli.application import app
from resources.errors import ErrorKind
from resources.ledger import PlanChange
from resources.reconciliation import reconcile
from resources.units import PartitionPlan, UnitState
from tests.support.tile_projects import TILES, WINDOW, TileProject, numbers


@pytest.fixture
def main_job(tmp_path: Path) -> TileProject:
    """A project with one scene over the whole area, already done: 12 tiles of two products."""
    project = TileProject(tmp_path)
    project.add_scene("base")
    assert numbers(project.run()) == (2 * TILES, 0, 0, 0, 0)
    return project


def test_second_pass_computes_nothing(main_job: TileProject) -> None:
    """A second pass skips every unit and changes no byte."""
    before = main_job.outputs()
    assert numbers(main_job.run()) == (0, 2 * TILES, 0, 0, 0)
    assert main_job.outputs() == before


def test_late_scene_redoes_only_what_it_touches_and_its_withdrawal_nothing(main_job: TileProject) -> None:
    """A late scene over one column of tiles redoes those; taken away again, the earlier outputs are found complete."""
    before = main_job.outputs()
    late = main_job.add_scene("late", columns=64, base=300)
    assert numbers(main_job.run()) == (2 * 3, 2 * 9, 0, 0, 0)
    late.unlink()
    assert numbers(main_job.run()) == (0, 2 * TILES, 0, 0, 0)
    after = main_job.outputs()
    assert {uri: after[uri] for uri in before} == before
    main_job.add_scene("late", columns=64, base=300)
    assert numbers(main_job.run()) == (0, 2 * TILES, 0, 0, 0)


def test_two_runs_that_plan_at_once_do_not_hide_a_scene(main_job: TileProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with an older listing that writes its plan over a newer one does not leave the window as planned by the newer."""
    project = main_job.project
    before = list_scenes(project, now=project.ledger.clock()).scenes
    main_job.add_scene("late", columns=64, base=300)
    after = list_scenes(project, now=project.ledger.clock()).scenes
    written = project.ledger.write_plan

    def crossed(asset: str, plans: Iterable[PartitionPlan]) -> PlanChange:
        change = written(asset, plans)
        if asset == "tiles":
            monkeypatch.undo()
            refresh_window(project, WINDOW, before, run_id="old")
        return change

    project.ledger.set_marker("tiles.plan", WINDOW, manifest_fingerprint="", config_fingerprint="")
    monkeypatch.setattr(project.ledger, "write_plan", crossed)
    refresh_window(project, WINDOW, after, run_id="new")
    assert numbers(main_job.run()) == (2 * 3, 2 * 9, 0, 0, 0)


def test_replaced_scene_is_redone(main_job: TileProject) -> None:
    """A scene with new pixels under the old name is another input."""
    main_job.add_scene("base", base=777)
    assert numbers(main_job.run()) == (2 * TILES, 0, 0, 0, 0)


def test_touched_scene_is_not_redone(main_job: TileProject) -> None:
    """A new modification time with the same bytes changes no key."""
    os.utime(main_job.scenes / "base_20260101.tif", ns=(0, 1_750_000_000_000_000_000))
    assert numbers(main_job.run()) == (0, 2 * TILES, 0, 0, 0)


@pytest.mark.parametrize(
    "change",
    [("metatile = 2", "metatile = 4"), ("workers = 1", "workers = 2"), ("base_s = 0.01", "base_s = 0.02")],
    ids=["metatile", "workers", "retry"],
)
def test_setting_that_cannot_change_pixels_redoes_nothing(main_job: TileProject, change: tuple[str, str]) -> None:
    """Metatile size, workers and retries are in no key."""
    before = main_job.outputs()
    main_job.configure(change)
    assert numbers(main_job.run()) == (0, 2 * TILES, 0, 0, 0)
    assert main_job.outputs() == before


@pytest.mark.parametrize(
    "change",
    [('bands = ["b1"]', 'bands = ["b1"]\nversion = "2"'), ('bands = ["b1"]', 'bands = ["b1"]\nresampling = "nearest"')],
    ids=["version", "resampling"],
)
def test_setting_of_a_product_redoes_that_product(main_job: TileProject, change: tuple[str, str]) -> None:
    """A product's version or settings redo that product alone, and the old outputs stay until swept."""
    before = main_job.outputs()
    main_job.configure(change)
    assert numbers(main_job.run()) == (TILES, TILES, 0, 0, 0)
    after = main_job.outputs()
    assert {uri: after[uri] for uri in before} == before
    assert len(after) == 3 * TILES


def test_reason_for_a_new_key_is_said(main_job: TileProject) -> None:
    """The plan says in words why a unit is redone."""
    old = {(row.product, row.tile): row.spec for row in main_job.rows()}
    main_job.add_scene("late", columns=64, base=300)
    main_job.configure(('bands = ["b1"]', 'bands = ["b1"]\nversion = "2"'))
    main_job.run()
    new = {(row.product, row.tile): row.spec for row in main_job.rows()}
    reasons = {explain_change(old[name], new[name]) for name in new if old[name] != new[name]}
    assert reasons == {
        "scene late is new",
        "version: 1 became 2",
        "version: 1 became 2; scene late is new",
    }


def _break_pixels(path: Path) -> None:
    """Overwrite the start of a block that is neither the first nor the last, so that a look at the ends does not see it."""
    with rasterio.open(path) as scene:
        offset = int(scene.get_tag_item("BLOCK_OFFSET_0_1", "TIFF", bidx=1))
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"\xff" * 64)


def test_scene_with_broken_pixels_is_one_dead_letter_and_tiles_do_without(main_job: TileProject) -> None:
    """Pixels that cannot be decoded reject the scene once; tiles are composed without it, and say so in their keys."""
    _break_pixels(main_job.add_scene("a-broken", base=900))
    report = main_job.run()
    letters = list(main_job.project.ledger.dead_letters())
    assert [(letter.subject, letter.kind) for letter in letters] == [("input", ErrorKind.CORRUPT_INPUT)]
    assert "broken" in letters[0].reason
    assert {row.state for row in main_job.rows()} == {UnitState.COMPLETE}, report.summary
    assert all(row.spec["inputs"]["lacks"] for row in main_job.rows())
    names = [row.partition for row in report.partitions]
    assert reconcile(main_job.project.ledger, main_job.project.store, asset="tiles", partitions=names).agrees
    assert numbers(main_job.run()) == (0, 2 * TILES, 0, 0, 0)
    assert len(list(main_job.project.ledger.dead_letters())) == 1


def test_replayed_scene_is_planned_again(main_job: TileProject) -> None:
    """Replaying a scene's dead letter makes tiles that went without it due with it at once; a second failure is said again."""
    _break_pixels(main_job.add_scene("a-broken", base=900))
    main_job.run()
    arguments = ["quarantine", "replay", "--all", "--config", str(main_job.folder / "tilewright.toml")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"TILEWRIGHT_CONFIG": None})
    assert done.exit_code == 0, done.output
    assert {row.state for row in main_job.rows()} == {UnitState.PENDING, UnitState.COMPLETE}
    assert not any(row.spec["inputs"]["lacks"] for row in main_job.rows())
    assert main_job.project.ledger.due_partitions("tiles", now=main_job.project.ledger.clock())
    main_job.run()
    assert {row.state for row in main_job.rows()} == {UnitState.COMPLETE}
    assert [letter.round for letter in main_job.project.ledger.dead_letters()] == [2]


def test_repaired_scene_supersedes_its_dead_letter(main_job: TileProject) -> None:
    """A scene put right has another digest: the tiles are done with it, and the dead letter is closed."""
    _break_pixels(main_job.add_scene("a-broken", base=900))
    main_job.run()
    main_job.add_scene("a-broken", base=900)
    assert numbers(main_job.run()) == (2 * TILES, 0, 0, 0, 0)
    assert list(main_job.project.ledger.dead_letters()) == []


def test_held_tiles_wait_for_their_scene(tmp_path: Path) -> None:
    """With on_rejected_scene = hold, tiles of a broken scene are quarantined with one dead letter, and no more work is due."""
    project = TileProject(tmp_path)
    hold = 'on_rejected_scene = "hold"'
    project.configure(('bands = ["b1"]', f'bands = ["b1"]\n{hold}'), ('nodata = "nan"', f'nodata = "nan"\n{hold}'))
    project.add_scene("base", column=64, columns=192)
    _break_pixels(project.add_scene("a-broken", columns=64, base=900))
    report = project.run()
    assert len(list(project.project.ledger.dead_letters())) == 1
    processed, _, failed, quarantined, not_attempted = numbers(report)
    assert (processed + quarantined, failed, not_attempted) == (2 * TILES, 0, 0)
    assert 2 <= quarantined <= 2 * 3, "only tiles of the broken scene's column may be held"
    assert all(row.tile in {"0-0-0", "0-0-1", "0-0-2"} for row in project.rows(UnitState.QUARANTINED))
    assert project.project.ledger.due_partitions("tiles", now=project.project.ledger.clock()) == []
    assert numbers(project.run()) == (0, processed, 0, quarantined, 0)


def test_scene_that_changes_underfoot_is_tried_again(main_job: TileProject) -> None:
    """A scene replaced between plan and read is not mixed into a tile under the old key: the unit fails as transient."""
    from assets.tiles import TilesBatch

    project = main_job.project
    main_job.configure(('bands = ["b1"]', 'bands = ["b1"]\nversion = "2"'))
    project = main_job.project
    batch = TilesBatch(project, [f"2026-01-01|{name}" for name in project.grid.partitions], run_id="late")
    main_job.add_scene("base", base=555)
    report = project.engine().run(batch, run_id="late")
    failed = main_job.rows(UnitState.FAILED, UnitState.PENDING)
    assert len(failed) == TILES, report.summary
    assert {row.error_kind for row in failed} == {ErrorKind.INPUT_CHANGED}
    assert "unwell" not in report.summary.reason
    assert numbers(main_job.run())[2:] == (0, 0, 0)


def test_scene_damaged_at_its_end_is_missed_by_its_tiles_alone(main_job: TileProject) -> None:
    """A scene that shows its damage at the first look has a place all the same: tiles it covers say that they lack it."""
    path = main_job.add_scene("cut", columns=64, base=900)
    path.write_bytes(path.read_bytes()[:-400])
    assert numbers(main_job.run()) == (2 * 3, 2 * 9, 0, 0, 0)
    lacking = {row.tile for row in main_job.rows() if row.spec["inputs"]["lacks"]}
    assert lacking == {"0-0-0", "0-0-1", "0-0-2"}
    assert len(list(main_job.project.ledger.dead_letters())) == 1
