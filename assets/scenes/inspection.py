"""Looking into raster files that may be harmful: each is opened only in a bounded child process.

In the child, `raster_facts.look` opens one file with restricted drivers, checks what is declared before it decodes anything, and
returns plain JSON facts, or what it found and what is allowed. `Inspector` is the parent's side: spawned workers with bounds on
memory, processor time and wall time, replaced when a file kills one.
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from resources.config_scenes import SourceConfig
from resources.errors import ErrorKind, TilewrightError, TransientError
from resources.keys import digest_of

INSPECTOR_VERSION = 1
"""Part of the key under which facts are kept: raise it when `look` finds more, or judges otherwise."""

_PR_SET_PDEATHSIG = 1
_SPARE_VIRTUAL_MB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a file may declare, and what looking at it may cost."""

    drivers: tuple[str, ...] = ("GTiff", "JP2OpenJPEG")
    max_pixels: int = 200_000_000_000
    max_bands: int = 512
    max_expansion: float = 5_000.0
    time_tag: str = "TIFFTAG_DATETIME"
    memory_mb: int = 1024
    processor_s: int = 20
    wall_s: float = 120.0
    workers: int = 2

    @classmethod
    def from_config(cls, source: SourceConfig, *, workers: int = 2) -> Limits:
        """The limits that a configuration sets."""
        return cls(
            drivers=source.drivers,
            max_pixels=source.max_pixels,
            max_bands=source.max_bands,
            max_expansion=source.max_expansion,
            time_tag=source.acquired_tag,
            workers=workers,
        )

    def cache_key(self, digest: str) -> str:
        """Key under which the facts about a file's content are kept."""
        return hashlib.sha256(f"{_fingerprint(self)}:{digest}".encode("ascii")).hexdigest()


@lru_cache(maxsize=16)
def _fingerprint(limits: Limits) -> str:
    """What beside its content decides what is found in a file. Bounds on cost do not: they only end what takes too long."""
    declared = [limits.max_pixels, limits.max_bands, str(limits.max_expansion)]
    return digest_of([INSPECTOR_VERSION, limits.drivers, *declared, limits.time_tag])


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of looking at one file: facts, a rejection, or both (damaged pixels); or neither now (`is_transient`: look anew).

    `message` is without the file's name: field, found, allowed.
    """

    facts: Mapping[str, Any] | None = None
    kind: ErrorKind | None = None
    message: str = ""
    is_transient: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. A transient finding is not worth keeping."""
        return {"facts": self.facts, "kind": None if self.kind is None else self.kind.value, "message": self.message}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Finding:
        """The finding that `to_json` wrote."""
        return cls(plain["facts"], None if plain["kind"] is None else ErrorKind(plain["kind"]), plain["message"])


class Inspector:
    """Looks at files in bounded child processes. A context: the children end with it, and with this process."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._pool: ProcessPool | None = None

    def __enter__(self) -> Inspector:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]  # pebble leaves it without types
            self._pool.join()
            self._pool = None

    def look_at(self, paths: Sequence[Path], *, limits: Limits | None = None) -> Iterator[Finding]:
        """A finding for each path, in order; `limits` in place of its own for what files may declare. No path, no process."""
        asked = limits or self.limits
        window = 4 * self.limits.workers
        if paths and self._pool is None:
            # a child takes longer to start than ten files take to look at
            self._pool = self._start(min(self.limits.workers, 1 + len(paths) // 10))
        waiting: list[tuple[Path, ProcessFuture[Finding]]] = []
        for path in paths:
            waiting.append((path, self._submit(path, asked)))
            if len(waiting) >= window:
                yield self._result(*waiting.pop(0), asked)
        while waiting:
            yield self._result(*waiting.pop(0), asked)

    def _start(self, workers: int) -> ProcessPool:
        return ProcessPool(
            max_workers=workers,
            context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(os.getpid(), self.limits.memory_mb),
        )

    def _submit(self, path: Path, limits: Limits) -> ProcessFuture[Finding]:
        assert self._pool is not None
        return self._pool.schedule(_look_in_child, args=(os.fspath(path), limits), timeout=limits.wall_s)

    def _result(self, path: Path, future: ProcessFuture[Finding], limits: Limits, *, again: bool = True) -> Finding:
        try:
            return future.result()
        except FutureTimeoutError:
            message = f"reading: found no answer within {limits.wall_s:g} s; looked at again next time"
            return Finding(kind=ErrorKind.TIMEOUT, message=message, is_transient=True)
        except ProcessExpired as death:
            code = death.exitcode
            if code == -signal.SIGXCPU:
                message = f"reading: found more than {limits.processor_s} s of processor time; allowed: less"
                return Finding(kind=ErrorKind.CORRUPT_INPUT, message=message)
            if code == -signal.SIGKILL and again:  # the system may have been short of memory for other reasons
                return self._result(path, self._submit(path, limits), limits, again=False)
            how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
            message = f"content: found that its reader died of it ({how}); allowed: an intact raster"
            return Finding(kind=ErrorKind.CORRUPT_INPUT, message=message)


def _start_worker(parent: int, memory_mb: int) -> None:
    """Runs first in each child: end with the parent, then load the reader, then bound memory beyond what loading took."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from assets.scenes import raster_facts  # noqa: F401  the parent never loads it: it opens rasters
    from resources import gdal_safety

    gdal_safety.require_restricted_drivers()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm", encoding="ascii") as stream:
        loaded = int(stream.read().split()[0]) * resource.getpagesize()
    bound = loaded + (memory_mb + _SPARE_VIRTUAL_MB) * 1024 * 1024
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))


def _look_in_child(path: str, limits: Limits) -> Finding:
    from assets.scenes.raster_facts import look

    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + limits.processor_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    try:
        facts, damage = look(path, limits)
        return Finding(facts) if damage is None else Finding(facts, damage.kind, damage.message)
    except TransientError as error:
        return Finding(kind=error.kind, message=error.message, is_transient=True)
    except TilewrightError as error:
        return Finding(kind=error.kind, message=error.message)
    except MemoryError:
        message = f"memory: found that reading asks for more than {limits.memory_mb} MB; allowed: less"
        return Finding(kind=ErrorKind.MEMORY_EXCEEDED, message=message)
    except Exception as error:  # whatever else a hostile file provokes is the file's fault
        message = (
            f"content: found data that cannot be read ({type(error).__name__}: {str(error)[:200]}); allowed: an intact raster"
        )
        return Finding(kind=ErrorKind.CORRUPT_INPUT, message=message)
