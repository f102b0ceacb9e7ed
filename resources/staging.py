"""The worker's half of a write: stage, sync, validate, digest. Runs in a worker process; never raises across its border."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resources.crashpoints import reach
from resources.errors import ErrorKind, UnitRejected, Verdict
from resources.forms import form_of
from resources.row_tables import check_rows
from resources.trees import remove_content
from resources.units import Made, Validate, Work, as_made
from resources.verdicts import Failure, classify

_ROOM_FLOOR_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StageTask:
    """One attempt at one unit, as sent to a worker. `subject` is what crash points and logs call it."""

    unit_key: str
    attempt: int
    subject: str
    output_uri: str
    path: Path
    work: Work
    validate: Validate


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged, synced, validated output, ready to be promoted."""

    digest: str
    size_bytes: int
    duration_s: float
    made: Made


def stage(task: StageTask) -> Staged | Failure:
    """Write, sync, validate and digest one output under its staging name.

    After a crash: a staging name that no reader takes for an output, removed by `sweep`. On any failure it is removed here.
    """
    started = time.perf_counter()
    form = form_of(task.output_uri)
    try:
        reach("stage.open", task.subject)
        made = as_made(task.work(task.path))
        reach("stage.written", task.subject)
        check_rows(made.rows)
        size = form.seal(task.output_uri, task.path, made)
        reach("stage.synced", task.subject)
        if size == 0:
            raise UnitRejected("the work function wrote an empty output", kind=ErrorKind.INVALID_OUTPUT)
        task.validate(task.path)
        reach("validate.done", task.subject)
        return Staged(form.digest(task.output_uri, task.path, made), size, time.perf_counter() - started, made)
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
    """Remove what was staged and what a library may have left beside it under the same name."""
    for name in (path.name, f"{path.name}.aux.xml", f"{path.name}.ovr", f"{path.name}.ovr.tmp", f"{path.name}.msk"):
        remove_content(path.parent / name)


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
