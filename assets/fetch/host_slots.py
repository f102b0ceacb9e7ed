"""At most so many requests at once to one host, over all processes of this machine.

A slot is one byte of a file per host, locked by its open file description: a holder that dies, however it dies, gives it back
with its last descriptor, so that there is no time-out to guess and nothing to clean up. The files are empty and may stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from resources.errors import EnvironmentUnfit, ErrorKind, TransientError

# struct flock of Linux on 64 bits: type, whence, start, length, pid; open-file-description locks need pid 0
_FLOCK = struct.Struct("hhqqi4x")
_LOOK_AGAIN_S = (0.01, 0.2)


@dataclass(frozen=True, slots=True)
class HostSlots:
    """`per_host` slots for each host, kept in `folder` on a local disk.

    Holds no descriptor between two uses, so it can be pickled.
    """

    folder: Path
    per_host: int

    def __post_init__(self) -> None:
        if self.per_host < 1:
            raise ValueError(f"per_host must be at least 1, not {self.per_host}")

    @contextmanager
    def take(self, host: str, timeout_s: float) -> Iterator[int]:
        """Hold one of the slots of `host` while the block runs; its number is given.

        Raises `TransientError` when none is free within `timeout_s` seconds, `EnvironmentUnfit` when the folder cannot be used.
        After a crash: the slot is free at once.
        """
        descriptor = self._open(host)
        try:
            yield self._wait(descriptor, host, timeout_s)
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, host: str, timeout_s: float) -> int:
        until, pause_s = time.monotonic() + timeout_s, _LOOK_AGAIN_S[0]
        while True:
            number = self._try_each(descriptor)
            if number is not None:
                return number
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TransientError(
                    f"all {self.per_host} places at {host} were taken for {timeout_s:g} s; "
                    "fewer workers or more places per host help",
                    kind=ErrorKind.LOCK_CONTENTION,
                )
            # the kernel can wait for one lock, not for the first of several
            time.sleep(min(left_s, pause_s * random.uniform(0.5, 1.0)))
            pause_s = min(pause_s * 1.5, _LOOK_AGAIN_S[1])

    def _try_each(self, descriptor: int) -> int | None:
        for number in range(self.per_host):
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._unfit(error) from error
            return number
        return None

    def _open(self, host: str) -> int:
        name = hashlib.sha256(host.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(self.folder / f"{name}.slots", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._unfit(error) from error

    def _unfit(self, error: OSError) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"no places can be kept in {self.folder} ({error}); it must be writable and on a local disk",
            kind=ErrorKind.STORE_UNWRITABLE,
        )
