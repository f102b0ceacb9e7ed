"""The command line goes by the shape of a pipeline: the same commands, other assets, tiles only where there are any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assets.pipeline_shape import shape_of
from pipelines.cli.application import app
from resources.config import load_config
from resources.opening import open_project_ledger
from tests.support.ledgers import partition_plan, planned_unit

TEXT = """
pipeline = "{pipeline}"

[window]
start = 2026-01-01
end = 2026-01-03

[store]
min_free_mb = 0
"""


@pytest.fixture(params=["digitization", "inspections"])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without tiles, with an empty source; what other tests left in the environment is gone."""
    for name in [name for name in os.environ if name.startswith("TILEWRIGHT_") and name != "TILEWRIGHT_CI"]:
        monkeypatch.delenv(name)
    for name in ("masters", "reports"):
        (tmp_path / name).mkdir()
    path = tmp_path / "tilewright.toml"
    path.write_text(
        f'pipeline = "{request.param}"\n\n[window]\nstart = 2026-01-01\nend = 2026-01-03\n\n[store]\nmin_free_mb = 0\n'
    )
    monkeypatch.setenv("TILEWRIGHT_CONFIG", str(path))
    return path


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and all output of a command."""
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return done.exit_code, done.output


def test_windows_stand_by_the_units_of_the_pipeline(config: Path) -> None:
    """`status` counts the units of access copies or records as it counts tiles."""
    settings = load_config(config)
    ledger = open_project_ledger(settings)
    ledger.write_plan(shape_of(settings).units, [partition_plan("2026-01-01", [planned_unit(1)], asset=shape_of(settings).units)])
    code, output = run("status", "--window", "2026-01-01")
    assert code == 3
    assert "incomplete" in output


def test_verify_looks_at_every_asset_of_the_pipeline(config: Path) -> None:
    """The table has the pipeline's own assets, those with periods of their own included."""
    shape = shape_of(load_config(config))
    code, output = run("verify")
    assert code == 0
    assert all(name in output for name in (*shape.window_assets, *shape.more))
    assert "tile_catalogue" not in output


def test_there_are_no_tiles_to_ask_for(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run --tile` is wrong usage in a project that has none."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    code, output = run("run", "--tile", "12-840-1524", "--window", "2026-01-01")
    assert code == 2
    assert "there are no tiles here" in output


def test_rows_are_rebuilt_from_a_backup_only(config: Path) -> None:
    """`rebuild-ledger` says that what is in the ledger alone is in no output."""
    from resources.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="restore its backup"):
        run("rebuild-ledger")
