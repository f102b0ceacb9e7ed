"""Ending a run that hangs, by hand: its leases live with its process, so they are broken by ending it.

Closes the window in which a process number is somebody else's by now: only a process that has the lease file open is ended.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from resources.errors import EnvironmentUnfit, ErrorKind

_KILL_WAIT_S = 10.0


def end_local_holder(path: Path, *, pid: int, grace_s: float) -> bool:
    """Ask the process that holds leases in the file at `path` to stop, and kill it after `grace_s` seconds.

    True: it is gone now; False: it was gone before, or the number is another process's. Raises `EnvironmentUnfit` when this
    account may not end it. After a crash: the run ends or goes on; its writes are safe either way.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # the descriptor now names one process for good, whatever its number becomes; is it the holder?
        if not _has_open(pid, path):
            return False
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_WAIT_S)):
            signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], wait_s)[0]:
                return True
    except ProcessLookupError:
        return True
    except PermissionError as error:
        raise EnvironmentUnfit(
            f"process {pid} cannot be ended by this account; end it as its owner", kind=ErrorKind.CREDENTIALS_REFUSED
        ) from error
    finally:
        os.close(descriptor)
    raise EnvironmentUnfit(
        f"process {pid} does not die, it waits for a device; see to its disk or mount", kind=ErrorKind.STORE_UNWRITABLE
    )


def _has_open(pid: int, path: Path) -> bool:
    wanted = os.stat(path)
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    found = os.stat(entry.path)
                except OSError:
                    continue
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    except FileNotFoundError:
        return False
    return False
