"""The whole loop through Dagster's own processes: daemon, code server, web server, run workers; and what killing them does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from pipelines.findings import UNITS_CHECK
from resources.config import load_config
from resources.ledger import Ledger, RunRow, open_ledger
from resources.opening import utc_now
from resources.units import UnitState
from tests.support.batches import ASSET
from tests.support.bytes_location import CONFIGURATION, JOB, seen_partitions, write_configuration
from tests.support.dagster_processes import Processes, eventually, kill, processes

pytestmark = [pytest.mark.slow]
PATIENCE_S = 300.0
QUICK = CONFIGURATION.replace("later_base_s = 60.0", "later_base_s = 1.0").replace(
    "interval_s = 4", "interval_s = 4\nheartbeat_timeout_s = 8.0\nrequest_timeout_s = 60.0"
)
BACKFILL = """mutation($names: [String!]) { launchPartitionBackfill(backfillParams: {
  assetSelection: [{path: ["bytes"]}], partitionNames: $names, fromFailure: false, tags: [] }) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""


@dataclass
class Loop:
    """A running Dagster over a project of bytes."""

    processes: Processes
    ledger: Ledger
    instance: dg.DagsterInstance
    folder: Path
    config: Any

    def states(self) -> set[UnitState]:
        """States that units are in."""
        return {row.state for row in self.ledger.units()}

    def runs(self, *statuses: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
        """Runs of the instance."""
        return list(self.instance.get_runs(dg.RunsFilter(statuses=list(statuses))))

    def working_run(self) -> RunRow | None:
        """A run that has begun and is at work on a unit."""
        if UnitState.RUNNING not in self.states():
            return None
        return next(iter(self.ledger.runs(unended=True)), None)

    def launch(self, *names: str) -> str:
        """A backfill as the UI launches it."""
        found = eventually(lambda: self.processes.ask(BACKFILL, {"names": list(names)}), timeout_s=PATIENCE_S)
        assert found["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess", found
        return str(found["launchPartitionBackfill"]["backfillId"])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Makes a loop of a project whose units behave as told."""
    started = ExitStack()

    def build(*, behaviours: dict[str, str], web: bool = False, **settings: Any) -> Loop:
        path = write_configuration(tmp_path, text=QUICK)
        (tmp_path / "bytes.json").write_text(json.dumps({"behaviours": behaviours, "is_inline": False, **settings}))
        running = started.enter_context(processes(tmp_path, path))
        config = load_config(path)
        ledger = open_ledger(config, clock=utc_now)
        # first, and alone: processes that make Dagster's databases together spoil them
        instance = dg.DagsterInstance.from_config(str(tmp_path / "dagster_home"))
        started.callback(instance.dispose)
        running.start_daemon()
        if web:
            running.start_web_server()
        return Loop(running, ledger, instance, tmp_path, config)

    with started:
        yield build


def plan(loop: Loop, behaviours: dict[tuple[int, int], str]) -> None:
    """Write the plan, upon which the failed-partition sensor asks for everything."""
    from resources.leases import LocalLeases
    from tests.support.bytes_location import BytesProject

    leases = LocalLeases(loop.folder / "unused.lock")
    BytesProject(loop.config, loop.ledger, leases, behaviours).batch()


def test_the_loop_heals_by_itself_and_the_backfill_of_the_ui_sees_all_keys(make: Any) -> None:
    """A backfill of scattered partitions runs each contiguous stretch with all its keys, and the sensor finishes what failed.

    The check of the failed run is told by the run-end sensor; no unit that was complete is computed again.
    """
    loop = make(behaviours={"1,0": "transient:source"}, web=True)
    loop.launch("w1|p0000", "w1|p0001", "w1|p0003")
    eventually(lambda: UnitState.FAILED in loop.states(), timeout_s=PATIENCE_S)
    eventually(lambda: ["w1|p0000", "w1|p0001"] in seen_partitions(loop), timeout_s=PATIENCE_S)
    eventually(lambda: ["w1|p0003"] in seen_partitions(loop), timeout_s=PATIENCE_S)
    (loop.config.store_dir / "bytes" / "source.repaired").touch()
    eventually(lambda: loop.states() == {UnitState.COMPLETE}, timeout_s=PATIENCE_S)
    eventually(lambda: not loop.runs(dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.QUEUED), timeout_s=PATIENCE_S)
    attempts = [entry for row in loop.ledger.units() for entry in loop.ledger.history(row.key) if entry.what == "attempt"]
    succeeded = [entry for entry in attempts if entry.outcome == "SUCCEEDED"]
    assert len(succeeded) == 8
    names = [f"w1|p{i:04d}" for i in range(4)]
    watched = dg.MultiPartitionsDefinition(
        {
            "batch_window": dg.StaticPartitionsDefinition(["w1"]),
            "tile": dg.StaticPartitionsDefinition([name.partition("|")[2] for name in names]),
        }
    )

    def all_green() -> bool:
        found = loop.instance.get_status_by_partition(dg.AssetKey([ASSET]), names, watched) or {}
        return {status.value if status else "" for status in found.values()} == {"MATERIALIZED"}

    eventually(all_green, timeout_s=PATIENCE_S)
    failed = loop.runs(dg.DagsterRunStatus.FAILURE)
    assert failed

    def told() -> bool:
        found = loop.processes.ask(
            '{ assetNodes(assetKeys: [{path: ["bytes"]}]) { assetChecksOrError { ... on AssetChecks { checks { name'
            " executionForLatestMaterialization { status } } } } } }"
        )
        checks = found["assetNodes"][0]["assetChecksOrError"]["checks"]
        return {check["name"]: check["executionForLatestMaterialization"] for check in checks}[UNITS_CHECK] is not None

    eventually(told, timeout_s=PATIENCE_S)


def test_a_killed_run_worker_is_found_and_its_work_is_finished(make: Any) -> None:
    """kill -9 of the run worker: Dagster says FAILURE, the lease is free, the sensor asks again, and everything completes."""
    loop = make(behaviours={"0,0": "hang:wait"})
    plan(loop, {(0, 0): "hang:wait"})
    row = eventually(loop.working_run, timeout_s=PATIENCE_S)
    (loop.config.store_dir / "bytes").mkdir(exist_ok=True)
    (loop.config.store_dir / "bytes" / "wait.repaired").touch()
    workers = psutil.Process(row.pid).children(recursive=True)
    kill(row.pid)
    psutil.wait_procs(workers, timeout=10)
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    eventually(lambda: loop.states() == {UnitState.COMPLETE}, timeout_s=PATIENCE_S)
    ended = loop.instance.get_run_by_id(row.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE


def test_a_run_whose_worker_and_code_server_died_is_reported_dead(make: Any) -> None:
    """Worker and code server killed together: Dagster shows STARTED, the dead-run sensor reports it, and the work is finished."""
    loop = make(behaviours={"0,0": "hang:wait"})
    plan(loop, {(0, 0): "hang:wait"})
    row = eventually(loop.working_run, timeout_s=PATIENCE_S)
    (loop.config.store_dir / "bytes").mkdir(exist_ok=True)
    (loop.config.store_dir / "bytes" / "wait.repaired").touch()
    server = psutil.Process(row.pid).parent()
    assert server is not None
    assert "grpc" in " ".join(server.cmdline())
    for pid in (server.pid, row.pid):
        kill(pid)
    eventually(lambda: loop.states() == {UnitState.COMPLETE}, timeout_s=PATIENCE_S)
    ended = loop.instance.get_run_by_id(row.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE
    titles = [alert.title for alert in loop.ledger.due_alerts(now=utc_now(), repeat_every=timedelta(days=1))]
    assert f"A run of {ASSET} died without a word" in titles
    assert ended.job_name == JOB
