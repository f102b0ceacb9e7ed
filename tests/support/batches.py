"""A small real asset for tests of the engine: units that write a few bytes, and can be told to misbehave.

Their outputs are files, directories, events or records: the same units, so that each promise is tested for each form of output.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from resources.errors import EnvironmentUnfit, ErrorKind, InputRejected, TransientError, UnitRejected
from resources.keys import SHORT_KEY_LENGTH, unit_key
from resources.ledger import Ledger, UnitRow
from resources.row_tables import row_uri
from resources.units import Made, Metrics, PartitionPlan, PlannedUnit, UnitOfWork
from tests.support.rows import event_row, record_row

ASSET = "bytes"
PAGES = 3
FORMS = ("file", "directory", "event", "record")


def write_bytes(key: str, size: int, behaviour: str, pause_s: float, form: str, path: Path) -> Metrics | Made:
    """Write `size` bytes that name their unit, or say it in a row; `behaviour` says how to fail instead."""
    marker = path.parent.parent / f"{behaviour.partition(':')[2] or 'none'}.repaired"
    name = "" if marker.exists() else behaviour.partition(":")[0]
    if name == "transient":
        raise TransientError("the source is away", kind=ErrorKind.SOURCE_UNAVAILABLE)
    if name == "later":
        raise TransientError("the source is away", retry_after_s=3600)
    if name == "soon":
        raise TransientError("the source is away", retry_after_s=0.04)
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
    if name == "garble" and not (path.parent / ".garbled").exists():
        (path.parent / ".garbled").touch()
        garble_answers()
    if name == "hang":
        time.sleep(3600)
    time.sleep(pause_s)
    content = (key.encode() + b"\n") * (size // 65 + 1)
    if name in ("empty", "link"):
        path.mkdir()
    if name == "link":
        (path / "page0.bin").symlink_to("/etc/passwd")
    if name in ("empty", "link", "rowless"):
        return {"size": size}
    if name == "bad row":
        return Made(rows=(event_row(0, event_id=key, agent=None),))
    if form == "directory" and name != "file":
        for number in range(PAGES):
            part = path / f"part{number % 2}"
            part.mkdir(parents=True, exist_ok=True)
            (part / f"page{number}.bin").write_bytes(content)
        return {"size": size}
    path.write_bytes(content)
    if form == "event":
        return Made({"size": size}, rows=(event_row(0, event_id=key),))
    if form == "record":
        return Made({"size": size}, rows=(record_row(key, "2026"),), revision="found")
    return {"size": size}


def garble_answers() -> None:
    """Do what a worker does that dies while it sends its answer: leave nonsense in the pipe that all workers share."""
    (channel,) = (found for found in gc.get_objects() if type(found).__name__ == "WorkerChannel")
    channel.writer.send_bytes(b"half an answer")


def check_bytes(key: str, path: Path) -> None:
    """Raise unless the file, or each page of the directory, names the unit."""
    pages = [page for page in path.rglob("*") if page.is_file()] if path.is_dir() else [path]
    if path.is_dir() and len(pages) != PAGES:
        raise UnitRejected(f"{path} has {len(pages)} pages", kind=ErrorKind.INVALID_OUTPUT)
    for page in pages:
        with page.open("rb") as stream:
            if stream.read(64) != key.encode():
                raise UnitRejected(f"{page} is not of unit {key}", kind=ErrorKind.INVALID_OUTPUT)


def output_uri(key: str, tile: str, form: str, *, replaces: bool = False) -> str:
    """Where a unit's output goes."""
    if form == "event":
        return row_uri("preservation_events", key)
    if form == "record":
        return row_uri("inspection_records", key, "2026")
    suffix = "pages" if form == "directory" else "bin"
    return f"bytes/w1/{tile}.{suffix}" if replaces else f"bytes/w1/{tile}.{key[:SHORT_KEY_LENGTH]}.{suffix}"


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
        form: str = "file",
    ) -> None:
        self.replaces = replaces
        self._form = form
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
            output_uri=output_uri(key, tile, self._form, replaces=self.replaces),
            source=source,
            inputs=("bad-input",) if behaviour == "input" else (),
            spec={"version": version},
        )
        work = partial(write_bytes, key, size, behaviour, self._pause_s, self._form)
        return UnitOfWork(planned, work, partial(check_bytes, key), replaces=self.replaces)

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned rows."""
        return [self.works[row.key] for row in rows if row.key in self.works]

    def replan(self) -> None:
        """Nothing depends on rejected inputs here."""
