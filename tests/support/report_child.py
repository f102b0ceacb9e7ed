"""A child process that runs the reports of a project of inspections once, to be killed, stopped and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from assets.inspections.project import InspectionsProject
from assets.inspections.records_batch import RecordsBatch
from assets.project import open_project
from resources.leases import LocalLeases
from tests.support.child import ROOT


def start(config: Path, run_id: str, *, faults: str = "", own_leases: bool = False) -> subprocess.Popen[str]:
    """Start a child run. `own_leases`: leases that nobody shares, so that two runs really work on one partition."""
    environment = {
        **os.environ,
        "TILEWRIGHT_FAULTS": faults,
        "TILEWRIGHT_FAULTS_DIR": str(config.parent / f"faults-{run_id}"),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.report_child", str(config), run_id, "own" if own_leases else "shared"],
        env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def main(config_path: str, run_id: str, leases: str, window: str = "2026-01") -> None:
    """Run once and print the outcome."""
    project = open_project(config_path)
    assert isinstance(project, InspectionsProject)
    engine = replace(project.engine(), pid=os.getpid())
    if leases == "own":
        engine = replace(engine, leases=LocalLeases(project.config.state_dir / f"{run_id}.lock"))
    report = engine.run(RecordsBatch(project, [window], run_id=run_id), run_id=run_id)
    print(json.dumps({"outcome": report.summary.outcome, "processed": report.summary.processed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
