"""`tilewright doctor`: well on a good project, and a name and a remedy for each thing that is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.demo.imagery import invented_imagery
from pipelines.demo.scenes_project import build_project

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    built = build_project(tmp_path, invented_imagery("."))
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "DAGSTER_"))}
    return outer | {"TILEWRIGHT_CONFIG": str(built.config)}


def doctor(environment: dict[str, str]) -> tuple[int, dict[str, dict[str, object]]]:
    command = [sys.executable, "-m", "pipelines.cli", "doctor", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_a_good_project_is_well_and_left_as_it_was(environment: dict[str, str], tmp_path: Path) -> None:
    """Every question is answered well; no store is made and no probe file stays."""
    code, findings = doctor(environment)
    assert [finding for finding in findings.values() if not finding["is_well"]] == []
    assert code == 0
    assert not (tmp_path / "outputs").exists()
    assert not list(tmp_path.glob(".staged-*"))


def test_each_fault_is_one_finding_and_hides_no_other(environment: dict[str, str], tmp_path: Path) -> None:
    """A missing source, missing zones, an unknown driver, too many partitions and a bad alert URL are five findings at once."""
    (tmp_path / "scenes").rename(tmp_path / "moved")
    (tmp_path / "zones.geojson").unlink()
    faults = {
        "TILEWRIGHT_SOURCE__DRIVERS": '["GTiff", "VRT"]',
        "TILEWRIGHT_ALERTS__URLS": '["nonsense://secret-token"]',
        "TILEWRIGHT_WINDOW__START": "1950-01-01",
        "TILEWRIGHT_WINDOW__EVERY": "hour",
    }
    code, findings = doctor(environment | faults)
    assert code == 1
    words = {name: str(finding["detail"]) for name, finding in findings.items() if not finding["is_well"]}
    assert set(words) >= {"source", "zones", "GDAL", "grid", "alerts"}
    assert "source.uri" in words["source"]
    assert "100,000" in words["grid"]
    assert "VRT" in words["GDAL"]
    assert "secret-token" not in words["alerts"]
    assert findings["ledger"]["is_well"]
