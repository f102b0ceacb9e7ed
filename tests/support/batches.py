"""A small real asset for tests of the engine: units that write a few bytes, and can be told to misbehave."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from resources.errors import EnvironmentUnfit, ErrorKind, InputRejected, TransientError, UnitRejected
from resources.keys import SHORT_KEY_LENGTH, unit_key
from resources.ledger import Ledger, UnitRow
from resources.units import PartitionPlan, PlannedUnit, UnitOfWork

ASSET = "bytes"


def write_bytes(key: str, size: int, behaviour: str, pause_s: float, path: Path) -> dict[str, int]:
    """Write `size` bytes that name their unit; `behaviour` says how to fail instead."""
    marker = path.parent.parent / f"{behaviour.partition(':')[2] or 'none'}.repaired"
    name = "" if marker.exists() else behaviour.partition(":")[0]
    if name == "transient":
        raise TransientError("the source is away", kind=ErrorKind.SOURCE_UNAVAILABLE)
    if name == "reject":
        raise UnitRejected("this unit cannot be done", kind=ErrorKind.CONTRACT_VIOLATED)
    if name == "input":
        raise InputRejected("block 3 cannot be decoded", input_digest="bad-input")
    if name == "unfit":
        raise EnvironmentUnfit("credentials were refused", kind=ErrorKind.CREDENTIALS_REFUSED)
    if name == "unknown":
        raise RuntimeError("nobody knows")
    if name == "die":
        os.kill(os.getpid(), 9)
    if name == "memory":
        bytearray(1 << 40)
    if name == "hang":
        time.sleep(3600)
    time.sleep(pause_s)
    path.write_bytes((key.encode() + b"\n") * (size // 65 + 1))
    return {"size": size}


def check_bytes(key: str, path: Path) -> None:
    """Raise unless the file names the unit."""
    with path.open("rb") as stream:
        if stream.read(64) != key.encode():
            raise UnitRejected(f"{path} is not of unit {key}", kind=ErrorKind.INVALID_OUTPUT)


class BytesBatch:
    """Partitions `w1|p0000`... of a few units each."""

    asset = ASSET

    def __init__(
        self,
        ledger: Ledger,
        *,
        partitions: int = 2,
        units_each: int = 4,
        size: int = 100,
        version: str = "1",
        behaviours: dict[tuple[int, int], str] | None = None,
        sources: int = 1,
        pause_s: float = 0.0,
        replaces: bool = False,
    ) -> None:
        self.replaces = replaces
        self._pause_s = pause_s
        self._ledger = ledger
        self._behaviours = behaviours or {}
        self.works: dict[str, UnitOfWork] = {}
        self.partitions: Sequence[str] = [f"w1|p{i:04d}" for i in range(partitions)]
        self.plans = []
        for i, name in enumerate(self.partitions):
            units = []
            for j in range(units_each):
                work = self._unit(i, j, size=size, version=version, source=f"source{i % sources}")
                self.works[work.unit.key] = work
                units.append(work.unit)
            self.plans.append(PartitionPlan(ASSET, name, "w1", tuple(units), tile=f"p{i:04d}"))
        self.change = ledger.write_plan(ASSET, self.plans)

    def _unit(self, i: int, j: int, *, size: int, version: str, source: str) -> UnitOfWork:
        behaviour = self._behaviours.get((i, j), "")
        key = unit_key(operation="bytes", version=version, settings={"size": size}, destination=[i, j], inputs=[])
        tile = f"0-{i}-{j}"
        planned = PlannedUnit(
            key=key,
            product="bytes",
            window="w1",
            tile=tile,
            output_uri=f"bytes/w1/{tile}.bin" if self.replaces else f"bytes/w1/{tile}.{key[:SHORT_KEY_LENGTH]}.bin",
            source=source,
            inputs=("bad-input",) if behaviour == "input" else (),
            spec={"version": version},
        )
        work = partial(write_bytes, key, size, behaviour, self._pause_s)
        return UnitOfWork(planned, work, partial(check_bytes, key), replaces=self.replaces)

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned rows."""
        return [self.works[row.key] for row in rows if row.key in self.works]

    def replan(self) -> None:
        """Nothing depends on rejected inputs here."""
