"""Projects of small units for the benchmarks: a real ledger, store and engine in a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.units import check_block, fail_until, write_block
from resources.config import load_config
from resources.engine import Engine
from resources.keys import unit_key
from resources.ledger import Ledger, UnitRow
from resources.opening import open_engine, open_leases, open_project_ledger, open_project_store
from resources.staging import StageTask
from resources.units import PartitionPlan, PlannedUnit, UnitOfWork

ASSET = "blocks"
UNITS_PER_PARTITION = 100
CONFIGURATION = """
[window]
start = 2026-01-01
[grid]
crs = "EPSG:32632"
resolution = 30
area = "9,47,9.1,47.1"
[retry]
tries_in_run = 1
later_base_s = 0.0
[[products]]
name = "any"
bands = ["b1"]
"""


@dataclass(frozen=True, slots=True)
class BlocksBatch:
    """Partitions of 100 units each; work is made when asked for, so that memory does not follow the number of units."""

    folder: Path
    size: int
    is_failing: bool
    partitions: Sequence[str]
    asset: str = ASSET
    replaces: bool = False

    def work(self, rows: Sequence[UnitRow]) -> Iterator[UnitOfWork]:
        """Work of planned rows."""
        for row in rows:
            number = int(row.tile or 0)
            unit = _planned(number, self.size)
            fails = self.is_failing and number % 10 == 0
            work = (
                partial(fail_until, self.folder / "repaired", unit.key, self.size)
                if fails
                else partial(write_block, unit.key, self.size)
            )
            yield UnitOfWork(unit, work, partial(check_block, unit.key))

    def replan(self) -> None:
        """Nothing depends on rejected inputs."""


@dataclass(slots=True)
class BareProject:
    """An engine with a batch to run."""

    engine: Engine
    ledger: Ledger
    batch: BlocksBatch


@dataclass(slots=True)
class SmallUnits:
    """The same units as tasks, for a loop without an engine."""

    tasks: list[StageTask] = field(default_factory=list)


def small_units(folder: Path, units: int, size: int) -> SmallUnits:
    """Tasks that stage into `folder/outputs`."""
    tasks = []
    for number in range(units):
        key = _planned(number, size).key
        path = folder / "outputs" / f".staged-{key[:16]}.bin"
        work, validate = partial(write_block, key, size), partial(check_block, key)
        tasks.append(StageTask(key, 1, str(number), path.name, path, work, validate))
    return SmallUnits(tasks)


def bare_project(folder: Path, *, units: int, size: int, is_failing: bool = False) -> BareProject:
    """A project in `folder`; with `is_failing`, every tenth unit fails until `folder/repaired` exists."""
    path = folder / "tilewright.toml"
    path.write_text(CONFIGURATION)
    config = load_config(path)
    ledger = open_project_ledger(config)
    names = [f"p{number:05d}" for number in range(-(-units // UNITS_PER_PARTITION))]
    ledger.write_plan(ASSET, (_plan(name, units=units, size=size) for name in names))
    engine = open_engine(config, ledger=ledger, store=open_project_store(config, ledger), leases=open_leases(config, ledger))
    return BareProject(engine, ledger, BlocksBatch(folder, size, is_failing, names))


def _plan(name: str, *, units: int, size: int) -> PartitionPlan:
    start = int(name[1:]) * UNITS_PER_PARTITION
    numbers = range(start, min(units, start + UNITS_PER_PARTITION))
    return PartitionPlan(ASSET, name, "w1", tuple(_planned(number, size) for number in numbers), tile=name)


def _planned(number: int, size: int) -> PlannedUnit:
    key = unit_key(operation="block", version="1", settings=size, destination=number, inputs=[])
    return PlannedUnit(key, "block", "w1", f"{ASSET}/w1/{number}.{key[:16]}.bin", tile=str(number))
