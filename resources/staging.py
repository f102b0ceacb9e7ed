"""The worker's half of a write: stage, sync, validate, digest. Runs in a worker process; never raises across its border."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from resources.crashpoints import reach
from resources.errors import ErrorKind, UnitRejected, Verdict
from resources.keys import digest_file
from resources.store import sync_file
from resources.units import Metrics, Validate, Work
from resources.verdicts import Failure, classify

_ROOM_FLOOR_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StageTask:
    """One attempt at one unit, as sent to a worker. `subject` is what crash points and logs call it."""

    unit_key: str
    attempt: int
    subject: str
    path: Path
    work: Work
    validate: Validate


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged, synced, validated output, ready to be promoted."""

    digest: str
    size_bytes: int
    duration_s: float
    metrics: Metrics = field(default_factory=dict)


def stage(task: StageTask) -> Staged | Failure:
    """Write, sync, validate and digest one output under its staging name.

    After a crash: a staging file that no reader takes for an output, removed by `sweep`. On any failure the file is removed here.
    """
    started = time.perf_counter()
    try:
        reach("stage.open", task.subject)
        metrics = task.work(task.path)
        reach("stage.written", task.subject)
        if not task.path.is_file():
            raise UnitRejected("the work function returned without writing its output", kind=ErrorKind.INVALID_OUTPUT)
        size = sync_file(task.path)
        reach("stage.synced", task.subject)
        if size == 0:
            raise UnitRejected("the work function wrote an empty output", kind=ErrorKind.INVALID_OUTPUT)
        task.validate(task.path)
        reach("validate.done", task.subject)
        return Staged(digest_file(task.path), size, time.perf_counter() - started, metrics)
    except Exception as error:
        failure = classify(error)
        if failure.verdict is Verdict.QUARANTINE:
            failure = _unfit_folder(task.path.parent, failure)
        remove_staged(task.path)
        return failure
    except BaseException:
        remove_staged(task.path)
        raise


def stage_all(tasks: Sequence[StageTask]) -> list[Staged | Failure]:
    """`stage` for a short row of quick units, so that the cost of reaching a worker is shared."""
    return [stage(task) for task in tasks]


def remove_staged(path: Path) -> None:
    """Remove a staging file and what a library may have left beside it under the same name."""
    for name in (path.name, f"{path.name}.aux.xml", f"{path.name}.ovr", f"{path.name}.ovr.tmp", f"{path.name}.msk"):
        with suppress(OSError):
            (path.parent / name).unlink(missing_ok=True)


def _unfit_folder(folder: Path, failure: Failure) -> Failure:
    """The same failure, or a STOP where the folder is at fault: libraries lose the error number of a full or vanished disk."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return Failure(
            Verdict.STOP, ErrorKind.STORE_MISSING, f"{folder}: the store's folder is gone ({error.strerror}); {failure.message}"
        )
    if found.f_bavail * found.f_frsize < _ROOM_FLOOR_BYTES:
        return Failure(Verdict.STOP, ErrorKind.DISK_FULL, f"{folder}: no space left; {failure.message}")
    return failure
