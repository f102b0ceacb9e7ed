"""Dagster's daemon as a child of the demo, with its code server and runs, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_STOP_S = 20.0


@contextmanager
def dagster_daemon(workspace: Path, *, log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the daemon until the end of the block; its words and those of its runs go to `log`.

    Asked to end (SIGTERM), this process takes the daemon along. After a crash: the daemon lives on; `tilewright leases list`
    shows what its runs hold.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    # a shell that started this with & ignores SIGINT for it, and the daemon would inherit that and never stop
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _exit)
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "dagster._daemon", "run", "-w", str(workspace)],
            cwd=workspace.parent,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            _end(child)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the daemon to stop, then end what is left of its session: its code server and runs."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
