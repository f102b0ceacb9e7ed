"""A child process that runs the assets of a digitization project through the engine, to be killed and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from assets.digitization.copies_batch import CopiesBatch
from assets.digitization.event_batch import EventsBatch
from assets.digitization.export import export_batch
from assets.digitization.project import DigitizationProject
from assets.digitization.shape import COPIES, EVENTS, PREMIS
from assets.project import open_project
from resources.leases import LocalLeases

ROOT = Path(__file__).parents[2]


def start(
    config: Path, run_id: str, *, assets: tuple[str, ...] = (COPIES, EVENTS, PREMIS), faults: str = "", own_leases: bool = False
) -> subprocess.Popen[str]:
    """Start a child run. `own_leases`: leases that nobody shares, so that two runs really work on one window."""
    environment = {
        **os.environ,
        "TILEWRIGHT_FAULTS": faults,
        "TILEWRIGHT_FAULTS_DIR": str(config.parent / f"faults-{run_id}"),
        "PYTHONPATH": str(ROOT),
    }
    arguments = [str(config), run_id, json.dumps(assets), "own" if own_leases else "shared"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.master_child", *arguments],
        env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def main(config_path: str, run_id: str, assets: str, leases: str, window: str = "2026-01-01") -> None:
    """Run each asset once, in order, and print the five numbers of each."""
    project = open_project(config_path)
    assert isinstance(project, DigitizationProject)
    said = {}
    for asset in json.loads(assets):
        engine = project.engine(inline=asset == PREMIS)
        if leases == "own":
            engine = replace(engine, leases=LocalLeases(project.config.state_dir / f"{run_id}.lock"))
        batch = {
            COPIES: lambda: CopiesBatch(project, [window], run_id=run_id),
            EVENTS: lambda: EventsBatch(project, [window]),
            PREMIS: lambda: export_batch(project, [window]),
        }[asset]()
        report = replace(engine, pid=os.getpid()).run(batch, run_id=f"{run_id}-{asset}")
        found = report.summary
        said[asset] = {
            "outcome": found.outcome,
            "processed": found.processed,
            "skipped": found.skipped,
            "failed": found.failed,
            "quarantined": found.quarantined,
            "not_attempted": found.not_attempted,
        }
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
