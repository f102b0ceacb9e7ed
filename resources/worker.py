"""What runs first in a worker process. A module of its own, with nothing heavy imported, so that workers start fast."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1


def start_worker(parent: int, memory_mb: int, gdal_cache_mb: int, preload: tuple[str, ...]) -> None:
    """Runs first in each worker: die with the parent, leave signals to it, bound memory, load what units need."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["GDAL_CACHEMAX"] = str(gdal_cache_mb)
    for name in preload:
        __import__(name)
    with open("/proc/self/statm", encoding="ascii") as stream:
        baseline = int(stream.read().split()[0]) * resource.getpagesize()
    bound = baseline + memory_mb * 1024 * 1024
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
