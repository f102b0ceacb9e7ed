"""A child process that runs the engine on the small asset of `tests.support.batches`, to be killed, stopped and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from resources.config import load_config
from resources.leases import LocalLeases
from resources.opening import open_engine, open_leases, open_project_ledger, open_project_store
from tests.support.batches import BytesBatch

ROOT = Path(__file__).parents[2]

CONFIG = """
[window]
start = 2026-01-01
[grid]
crs = "EPSG:32632"
resolution = 30
area = "9,47,9.1,47.1"
[retry]
base_s = 0.01
cap_s = 0.05
later_base_s = 0.0
[executor]
unit_time_s = 20
[store]
min_free_mb = 0
[[products]]
name = "any"
bands = ["b1"]
"""


def write_config(folder: Path, extra: str = "") -> Path:
    """A configuration whose state and store lie in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tilewright.toml"
    path.write_text(CONFIG + extra)
    return path


def start(
    config: Path, run_id: str, *, faults: str = "", batch: dict[str, Any] | None = None, own_leases: bool = False
) -> subprocess.Popen[str]:
    """Start a child run. `own_leases`: leases that nobody shares, so that two runs really work on one partition."""
    environment = {
        **os.environ,
        "TILEWRIGHT_FAULTS": faults,
        "TILEWRIGHT_FAULTS_DIR": str(config.parent / f"faults-{run_id}"),
        "PYTHONPATH": str(ROOT),
    }
    arguments = [str(config), run_id, json.dumps(batch or {}), "own" if own_leases else "shared"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.child", *arguments],
        env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def main(config_path: str, run_id: str, batch: str, leases: str) -> None:
    """Run once and print the outcome."""
    config = load_config(config_path)
    ledger = open_project_ledger(config)
    engine = open_engine(
        config,
        ledger=ledger,
        store=open_project_store(config, ledger),
        leases=open_leases(config, ledger) if leases == "shared" else LocalLeases(config.state_dir / f"{run_id}.lock"),
    )
    engine = replace(engine, pid=os.getpid())
    report = engine.run(BytesBatch(ledger, **json.loads(batch)), run_id=run_id)
    print(
        json.dumps({"outcome": report.summary.outcome, "processed": report.summary.processed, "held": len(report.held_elsewhere)})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
