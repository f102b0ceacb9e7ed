"""The probe before runs are requested: what makes store or source unfit, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.doctor import examine
from resources.config import load_config
from resources.errors import EnvironmentUnfit
from resources.opening import open_project_ledger, open_project_store
from resources.probe import probe
from resources.store import open_store
from tests.support.bytes_location import BytesProject, make_project


@pytest.fixture
def project(tmp_path: Path) -> BytesProject:
    """A project whose store and source are fit."""
    made = make_project(tmp_path)
    assert probe(made.config, made.ledger) == []
    return made


def problems(project: BytesProject) -> list[str]:
    """What the probe says now."""
    return probe(project.config, project.ledger)


def test_an_unmounted_store(project: BytesProject) -> None:
    """A store that is gone is named, and none is made in its place."""
    project.config.store_dir.rename(project.config.root / "elsewhere")
    (found,) = problems(project)
    assert str(project.config.store_dir) in found
    assert not project.config.store_dir.exists()


def test_another_store_in_its_place(project: BytesProject) -> None:
    """A folder with another identity is not the store."""
    (project.config.store_dir / ".tilewright-store").write_text("somebody else\n")
    (found,) = problems(project)
    assert "somebody else" in found


def test_a_store_that_cannot_be_read(project: BytesProject) -> None:
    """What the system says of an identity file that cannot be read is told as a fault of the store, by each who asks."""
    identity = project.config.store_dir / ".tilewright-store"
    identity.unlink()
    identity.mkdir()
    (found,) = problems(project)
    assert "the store cannot be used (Is a directory)" in found
    with pytest.raises(EnvironmentUnfit, match="cannot be used"):
        open_project_store(project.config, project.ledger)


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    """On a project's first day too: a file where the store's folder should be is said in words."""
    (tmp_path / "outputs").touch()
    with pytest.raises(EnvironmentUnfit, match="cannot be used"):
        open_store(tmp_path / "outputs" / "store", remembered=None, remember=lambda _: None)


def test_a_missing_source(project: BytesProject) -> None:
    """A source folder that is gone is named with what to do."""
    project.config.source_dir.rmdir()
    (found,) = problems(project)
    assert "the source folder is not there; mount it" in found


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("pipeline = 'digitization'", "source.uri"),
        ("pipeline = 'inspections'", "source.tables"),
        ("pipeline = 'inspections'\nsource = { tables = 'batches/*.csv' }", "source.tables"),
        ("pipeline = 'inspections'\nsource = { listing = 'scans', pattern = '{site}_{period}.pdf' }", "source.listing"),
    ],
)
def test_a_missing_source_is_mended_by_a_key_that_there_is(tmp_path: Path, text: str, key: str) -> None:
    """The key that the message of the probe, and of the doctor, names is the one that holds the folder."""
    path = tmp_path / "tilewright.toml"
    path.write_text(f"{text}\nstore.min_free_mb = 0\nwindow.start = 2026-01-01\n")
    config = load_config(path)
    (found,) = probe(config, open_project_ledger(config))
    assert found.endswith(f"name the right folder in {key}")
    told = next(item for item in examine(config) if item.name == "source")
    assert told.detail.endswith(f"name another in {key}")


def test_a_source_that_is_a_file(project: BytesProject) -> None:
    """A source must be a folder."""
    project.config.source_dir.rmdir()
    project.config.source_dir.touch()
    (found,) = problems(project)
    assert "not a folder" in found


def test_a_full_disk(project: BytesProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less room than the configured least is said before a run finds out."""
    config: Any = project.config
    monkeypatch.setattr(config, "store", config.store.model_copy(update={"min_free_mb": 10**9}))
    (found,) = problems(project)
    assert "store.min_free_mb" in found
