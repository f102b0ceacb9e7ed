"""What the benchmarks share: CPU of a process and its children, peaks of memory, ratios with their bounds, and a table."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class Bound:
    """One measured figure against its bound; smaller is better."""

    name: str
    measured: float
    allowed: float
    unit: str
    detail: str = ""

    @property
    def holds(self) -> bool:
        """The figure is within its bound."""
        return self.measured <= self.allowed


def wall_s(work: Callable[[], Any]) -> float:
    """Seconds of wall time that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_s(work: Callable[[], Any]) -> float:
    """Seconds of CPU that `work` takes in this process and in children that ended meanwhile."""

    def used() -> float:
        own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime

    before = used()
    work()
    return used() - before


def paired_ratio(ours: Callable[[int], float], theirs: Callable[[int], float], *, pairs: int) -> tuple[float, list[float]]:
    """Median of the ratios ours/theirs, measured in turn (A B, B A, ...), so that a drifting machine weighs on both."""
    ratios = []
    for number in range(pairs):
        if number % 2:
            other, own = theirs(number), ours(number)
        else:
            own, other = ours(number), theirs(number)
        ratios.append(own / other)
    return median(ratios), ratios


class PeakMemory:
    """Highest resident memory of this process and its descendants while the block runs, in bytes."""

    def __init__(self, interval_s: float = 0.02) -> None:
        self.bytes = 0
        self._interval_s = interval_s
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        top = psutil.Process()
        while not self._over.wait(self._interval_s):
            total = 0
            for process in [top, *top.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, total)


def report(bounds: list[Bound]) -> int:
    """Print a table; the exit code is 1 when a bound is broken."""
    from rich.console import Console
    from rich.table import Table

    table = Table("bound", "measured", "allowed", "", "detail")
    for item in bounds:
        verdict = "[green]holds[/]" if item.holds else "[red]BROKEN[/]"
        table.add_row(item.name, f"{item.measured:.3g} {item.unit}", f"{item.allowed:.3g} {item.unit}", verdict, item.detail)
    Console(width=160).print(table)
    return 0 if all(item.holds for item in bounds) else 1
