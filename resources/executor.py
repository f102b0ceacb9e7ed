"""Executors: submit units, yield outcomes as they finish. A worker that dies takes only its own task with it.

Belongs here: where units are computed, and the bounds on each. Not here: what an outcome means (`resources.engine`). Local
default: a Pebble process pool, which survives a dying worker, names the task that killed it and ends one that takes too long.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pebble import ProcessExpired, ProcessPool

from resources.config import ExecutorConfig
from resources.staging import Staged, StageTask, stage, stage_all
from resources.verdicts import Failure, classify
from resources.worker import start_worker

_CHUNK_TARGET_S = 0.1
_CHUNK_MAX = 64
_AHEAD_S = 0.6
_GATHER_S = 0.1


class Fate(StrEnum):
    """What became of a task: it RETURNED (staged or failed), its worker was LOST, or it ran out of TIME."""

    RETURNED = "returned"
    LOST = "lost"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one task. `result` is set when the fate is RETURNED; `alone` tells that nothing shared its worker call."""

    task: StageTask
    fate: Fate
    result: Staged | Failure | None
    alone: bool
    detail: str = ""


class Executor(Protocol):
    """What the engine needs of an executor."""

    def room(self) -> int:
        """How many tasks may be submitted now."""

    def running(self) -> int:
        """How many submitted tasks have not been returned by `wait`."""

    def submit(self, tasks: Sequence[StageTask], *, alone: bool = False) -> None:
        """Start tasks; each becomes one `Outcome`. `alone`: each gets a worker call of its own."""

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Outcomes that have arrived, waiting at most `timeout_s` for the first."""

    def close(self, *, kill: bool = False) -> None:
        """End the workers; `kill` does not let running tasks finish."""


class LocalExecutor:
    """A pool of spawned worker processes on this machine."""

    def __init__(self, config: ExecutorConfig, *, preload: Sequence[str] = ()) -> None:
        self._config = config
        self._preload = tuple(preload)
        self._workers = config.workers
        self._unit_time_s = config.unit_time_s
        self._arrived: queue.SimpleQueue[list[Outcome]] = queue.SimpleQueue()
        self._running = 0
        self._mean_s: float | None = None
        self._calls: dict[Future[list[Staged | Failure]], list[StageTask]] = {}
        self._pool = self._new_pool()

    def room(self) -> int:
        """How many tasks to submit: none until a quarter of what may be in flight is free, so that attempts start in groups.

        In flight are one call running and one waiting for each worker, and of quick units enough for some tenths of a second,
        so that workers do not starve while a group is recorded.
        """
        ahead = 0 if self._mean_s is None else int(self._workers * _AHEAD_S / max(self._mean_s, 1e-6))
        capacity = max(2 * self._workers * self._chunk_size(), min(ahead, 2 * self._workers * _CHUNK_MAX))
        free = capacity - self._running
        return free if self._running == 0 or free >= max(1, capacity // 4) else 0

    def running(self) -> int:
        """Tasks submitted and not yet returned."""
        return self._running

    def submit(self, tasks: Sequence[StageTask], *, alone: bool = False) -> None:
        """Start tasks in calls of a tenth of a second or so; never waits."""
        size = 1 if alone else self._chunk_size()
        for start in range(0, len(tasks), size):
            chunk = list(tasks[start : start + size])
            if not self._pool.active:
                self._replace_pool()
            future = self._pool.schedule(stage_all, args=(chunk,), timeout=self._unit_time_s * len(chunk))
            self._running += len(chunk)
            self._calls[future] = chunk
            future.add_done_callback(self._collect)

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Outcomes that have arrived, and those that follow within a tenth of a second."""
        outcomes: list[Outcome] = []
        try:
            outcomes += self._arrived.get(timeout=timeout_s) if timeout_s > 0 else self._arrived.get_nowait()
            # a commit and a folder's fsync cost the same for one output and for twenty: gather a group
            until = time.monotonic() + _GATHER_S
            while len(outcomes) < self._running:
                outcomes += self._arrived.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            if self._running and not self._pool.active:
                self._replace_pool()
        self._running -= len(outcomes)
        for outcome in outcomes:
            if isinstance(outcome.result, Staged):
                seen = outcome.result.duration_s
                self._mean_s = seen if self._mean_s is None else 0.9 * self._mean_s + 0.1 * seen
        return outcomes

    def close(self, *, kill: bool = False) -> None:
        """End the workers and wait for them."""
        if kill:
            self._pool.stop()  # type: ignore[no-untyped-call]
        else:
            self._pool.close()  # type: ignore[no-untyped-call]
        self._pool.join()

    def _chunk_size(self) -> int:
        if self._mean_s is None:
            return 1
        return int(min(_CHUNK_MAX, max(1.0, _CHUNK_TARGET_S / max(self._mean_s, 1e-6))))

    def _collect(self, future: Future[list[Staged | Failure]]) -> None:
        chunk = self._calls.pop(future, None)
        if chunk is not None:
            self._arrived.put(_outcomes(chunk, future))

    def _new_pool(self) -> ProcessPool:
        config = self._config
        return ProcessPool(
            max_workers=config.workers,
            context=multiprocessing.get_context("spawn"),
            initializer=start_worker,
            initargs=(os.getpid(), config.unit_memory_mb, config.gdal_cache_mb, self._preload),
        )

    def _replace_pool(self) -> None:
        """A worker that dies while it sends its answer garbles the pipe that all share: what ran is lost, and done again."""
        broken, self._pool = self._pool, self._new_pool()
        for future in list(self._calls):
            if chunk := self._calls.pop(future, None):
                detail = "the pool of workers broke, and another took its place"
                self._arrived.put([Outcome(task, Fate.LOST, None, alone=False, detail=detail) for task in chunk])
        broken.stop()  # type: ignore[no-untyped-call]
        broken.join()


def _outcomes(chunk: list[StageTask], future: Future[list[Staged | Failure]]) -> list[Outcome]:
    alone = len(chunk) == 1
    if future.cancelled():
        return [Outcome(task, Fate.LOST, None, alone=False, detail="cancelled") for task in chunk]
    error = future.exception()
    if error is None:
        return [Outcome(task, Fate.RETURNED, result, alone) for task, result in zip(chunk, future.result(), strict=True)]
    if isinstance(error, BrokenExecutor):
        return [Outcome(task, Fate.LOST, None, alone=False, detail="the pool of workers broke") for task in chunk]
    if isinstance(error, ProcessExpired):
        detail = f"the worker process died ({_how(error.exitcode)})"
        return [Outcome(task, Fate.LOST, None, alone, detail) for task in chunk]
    if isinstance(error, TimeoutError):
        return [Outcome(task, Fate.TIME, None, alone, "the unit's time bound was reached") for task in chunk]
    return [Outcome(task, Fate.RETURNED, classify(error), alone) for task in chunk]


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"signal {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


class InlineExecutor:
    """Runs units in this process, one after the other: for window outputs, which are few and read only our own files."""

    def __init__(self) -> None:
        self._waiting: list[tuple[StageTask, bool]] = []

    def room(self) -> int:
        """One at a time, so that each is recorded before the next begins."""
        return 1 - len(self._waiting)

    def running(self) -> int:
        """Tasks submitted and not yet returned."""
        return len(self._waiting)

    def submit(self, tasks: Sequence[StageTask], *, alone: bool = False) -> None:
        """Note tasks; they run in `wait`."""
        self._waiting += [(task, alone) for task in tasks]

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Run what was submitted. With nothing to run, waits for `timeout_s`."""
        if not self._waiting:
            time.sleep(timeout_s)
        outcomes = [Outcome(task, Fate.RETURNED, stage(task), alone) for task, alone in self._waiting]
        self._waiting.clear()
        return outcomes

    def close(self, *, kill: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Forget what was not run."""
        self._waiting.clear()
