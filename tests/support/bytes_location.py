"""A small code location over the asset of `tests.support.batches`: real definitions, sensors and checks, no rasters.

`location` is for tests in one process; `defs` is loaded by code servers, from the configuration that `TILEWRIGHT_CONFIG` names
and the `bytes.json` beside it, which says how many partitions there are and how units misbehave.
"""

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import dagster as dg

from pipelines.checks import letters_check, units_check
from pipelines.dead_runs import dead_run_sensor
from pipelines.reconciling_sensors import failed_partition_sensor, run_end_sensor
from pipelines.standing_checks import letters_sensor
from pipelines.watched import Watched
from resources.config import Config, load_config
from resources.engine import Engine
from resources.io_managers import AtomicPromoteIOManager, UnitsOutput, counts_metadata
from resources.leases import Leases
from resources.ledger import Ledger, open_ledger
from resources.opening import open_engine, open_leases, open_project_store, utc_now
from resources.store import LocalStore
from tests.support.batches import ASSET, BytesBatch

JOB = "bytes_of_window"
CHECKS_JOB = "bytes_checks"
WINDOW = "w1"
CONFIGURATION = """
[window]
start = 2026-01-01
[grid]
crs = "EPSG:32632"
resolution = 30
area = "9,47,9.1,47.1"
[[products]]
name = "a"
bands = ["b1"]
[retry]
tries_in_run = 1
base_s = 0.0
attempts_max = 3
later_base_s = 60.0
[executor]
workers = 2
[sensors]
interval_s = 4
partitions_per_run = 8
"""


class Clock:
    """The system's clock, which a test may move on."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self.ahead

    def move(self, **span: float) -> None:
        """Let time pass."""
        self.ahead += timedelta(**span)


@dataclass
class BytesProject:
    """A project whose only asset writes bytes. `behaviours`: (partition, unit) -> how it fails, see `write_bytes`."""

    config: Config
    ledger: Ledger
    leases: Leases
    behaviours: dict[tuple[int, int], str]
    partitions: int = 4
    units_each: int = 2
    version: str = "1"
    is_inline: bool = True

    @property
    def store(self) -> LocalStore:
        return open_project_store(self.config, self.ledger)

    def engine(self) -> Engine:
        return open_engine(
            self.config, ledger=self.ledger, store=self.store, leases=self.leases, preload=(), inline=self.is_inline
        )

    def batch(self) -> BytesBatch:
        """All partitions, planned."""
        return BytesBatch(
            self.ledger,
            partitions=self.partitions,
            units_each=self.units_each,
            version=self.version,
            behaviours=self.behaviours,
        )


class Some:
    """Some partitions of a batch."""

    asset = ASSET

    def __init__(self, batch: BytesBatch, partitions: Sequence[str]) -> None:
        self._batch = batch
        self.partitions = list(partitions)
        self.work = batch.work
        self.replan = batch.replan
        self.replaces = batch.replaces


class HasConfig(Protocol):
    """Anything with a configuration."""

    config: Config


@dataclass
class Location:
    """Definitions of a project, and the asset that its sensors watch."""

    definitions: dg.Definitions
    watched: Watched


def write_configuration(folder: Path, *, text: str = CONFIGURATION) -> Path:
    """Write a configuration with an empty source; returns its path."""
    (folder / "scenes").mkdir(parents=True, exist_ok=True)
    path = folder / "tilewright.toml"
    path.write_text(text)
    return path


def make_project(folder: Path, *, clock: Clock | None = None, text: str = CONFIGURATION, **settings: object) -> BytesProject:
    """A project of its own in a folder."""
    config = load_config(write_configuration(folder, text=text))
    ledger = open_ledger(config, clock=clock or utc_now)
    return BytesProject(config, ledger, open_leases(config, ledger), **({"behaviours": {}} | settings))


def watched_bytes(partitions: int) -> Watched:
    """The asset `bytes` with partitions `w1|p0000`..."""
    tiles = dg.StaticPartitionsDefinition([f"p{i:04d}" for i in range(partitions)])
    windows = dg.StaticPartitionsDefinition([WINDOW])
    return Watched(ASSET, dg.MultiPartitionsDefinition({"batch_window": windows, "tile": tiles}), (JOB,))


def location(project: BytesProject, *, interval_s: int = 4) -> Location:
    """Asset, checks, job and sensors over a project."""
    watched = watched_bytes(project.partitions)

    def opened() -> BytesProject:
        return project

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=dg.BetaWarning)

        @dg.asset(
            name=ASSET,
            partitions_def=watched.partitions_def,
            io_manager_key="units",
            backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=8),
        )
        def bytes_asset(context: dg.AssetExecutionContext) -> UnitsOutput:
            seen = Path(project.config.root / "seen.txt")
            with seen.open("a") as stream:
                stream.write(f"{context.run.run_id} {','.join(context.partition_keys)}\n")
            batch = Some(project.batch(), context.partition_keys)
            return UnitsOutput(batch, project.engine(), context.add_asset_metadata, lambda _, row: counts_metadata(row))

        definitions = dg.Definitions(
            assets=[bytes_asset],
            asset_checks=[units_check(watched, opened), letters_check(watched, opened)],
            jobs=[
                dg.define_asset_job(JOB, dg.AssetSelection.assets(watched.key)),
                dg.define_asset_job(CHECKS_JOB, dg.AssetSelection.checks_for_assets(watched.key)),
            ],
            sensors=[
                failed_partition_sensor(watched, opened, interval_s=interval_s),
                run_end_sensor([watched], opened, interval_s=interval_s),
                dead_run_sensor([watched], opened, interval_s=interval_s),
                letters_sensor(watched, opened, interval_s=interval_s),
            ],
            resources={"units": AtomicPromoteIOManager(config_path=str(project.config.path))},
            executor=dg.in_process_executor,
        )
    return Location(definitions, watched)


def seen_partitions(project: HasConfig) -> list[list[str]]:
    """Partitions that each run saw, in order."""
    path = Path(project.config.root / "seen.txt")
    return [line.split()[1].split(",") for line in path.read_text().splitlines()] if path.exists() else []


@dg.definitions
def defs() -> dg.Definitions:
    """The location that `TILEWRIGHT_CONFIG` names."""
    folder = Path(os.environ["TILEWRIGHT_CONFIG"]).parent
    settings = json.loads((folder / "bytes.json").read_text())
    behaviours = {tuple(map(int, name.split(","))): how for name, how in settings.pop("behaviours", {}).items()}
    config = load_config()
    ledger = open_ledger(config, clock=utc_now)
    project = BytesProject(config, ledger, open_leases(config, ledger), behaviours, **settings)
    return location(project).definitions
