"""Leases: the right to work on a partition now, which lives and dies with its holder.

Closes the window in which two runs work on one partition. There is no time to live to guess: on one machine a lease is a
byte-range lock of an open file description, on PostgreSQL a session-level advisory lock; the system frees either when the holder
is gone. Thousands of partitions cost one descriptor or one connection. Leases save work; the ledger's guards hold without them.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from resources.config import DEFAULT_SCHEMA
from resources.errors import EnvironmentUnfit, ErrorKind

# struct flock of Linux on 64 bits: type, whence, start, length, pid; open-file-description locks need pid 0
_FLOCK = struct.Struct("hhqqi4x")
_IDS_PER_STATEMENT = 2000

Describe = Callable[[int], str]
"""Says who took the lease of that id last, for people."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What was got: partitions acquired, and those held elsewhere with who holds them."""

    acquired: frozenset[str]
    held_elsewhere: Mapping[str, str] = field(default_factory=dict)


class Leases(Protocol):
    """Where leases are kept."""

    def hold(self, ids: Mapping[str, int]) -> AbstractContextManager[Lease]:
        """Take the leases that are free, never waiting, and give them back at the end of the block.

        After a crash: the leases are free at once.
        """
        ...

    def is_held(self, number: int) -> bool:
        """True while somebody, this process included, holds the lease of that id. Takes nothing."""
        ...

    def held(self, numbers: Iterable[int]) -> set[int]:
        """Those of the ids whose lease somebody holds now. Takes nothing."""
        ...

    def check_alive(self) -> None:
        """Raises `EnvironmentUnfit` when leases once held may be lost; the run must stop."""
        ...

    def close(self) -> None:
        """Give back everything."""
        ...


def _nobody_known(_number: int) -> str:
    return "another run"


class LocalLeases:
    """Leases among processes of one machine: byte `id` of one lock file, locked through one descriptor.

    The locks belong to the open file description, not to the process: closing another descriptor of the file frees nothing, two
    `LocalLeases` of one process exclude each other, and a child that inherited the descriptor would keep them. So the descriptor
    is closed on exec; never fork with it, spawn.
    """

    def __init__(self, path: Path | str, *, describe: Describe = _nobody_known) -> None:
        self.path = Path(path)
        self._describe = describe
        self._descriptor = -1
        self._mine: set[int] = set()
        self._guard = threading.Lock()

    @contextmanager
    def hold(self, ids: Mapping[str, int]) -> Iterator[Lease]:
        """Take what is free; see `Leases.hold`. Raises `EnvironmentUnfit` when the lock file cannot be used."""
        got: dict[str, int] = {}
        held: dict[str, str] = {}
        try:
            for name, number in ids.items():
                if self._take(number):
                    got[name] = number
                else:
                    held[name] = self._describe(number)
            yield Lease(frozenset(got), held)
        finally:
            for number in got.values():
                self._release(number)

    def is_held(self, number: int) -> bool:
        """See `Leases.is_held`."""
        with self._guard:
            if number in self._mine:
                return True
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
            answer = fcntl.fcntl(self._open(), fcntl.F_OFD_GETLK, asked)
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def held(self, numbers: Iterable[int]) -> set[int]:
        """See `Leases.held`."""
        return {number for number in numbers if self.is_held(number)}

    def check_alive(self) -> None:
        """Raises `EnvironmentUnfit` when the lock file was removed or replaced under a held lease."""
        with self._guard:
            if not self._mine:
                return
            ours = os.fstat(self._descriptor)
            try:
                there = self.path.stat()
            except OSError as error:
                raise self._unfit(error) from error
            if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
                raise self._unfit("it is another file now")

    def close(self) -> None:
        """Give back everything."""
        with self._guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1
            self._mine.clear()

    def _take(self, number: int) -> bool:
        with self._guard:
            if number in self._mine:
                return False
            try:
                self._lock(number, fcntl.F_WRLCK)
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._unfit(error) from error
            self._mine.add(number)
            return True

    def _release(self, number: int) -> None:
        with self._guard:
            if number in self._mine:
                self._mine.discard(number)
                self._lock(number, fcntl.F_UNLCK)

    def _lock(self, number: int, kind: int) -> None:
        fcntl.fcntl(self._open(), fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0))

    def _open(self) -> int:
        if self._descriptor < 0:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise self._unfit(error) from error
        return self._descriptor

    def _unfit(self, cause: object) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"the lock file {self.path} cannot be used ({cause}); it must be on a local disk and stay in place while runs live",
            kind=ErrorKind.LEDGER_UNREACHABLE,
        )


class PostgresLeases:
    """Leases among all that reach one PostgreSQL database: advisory locks of one session of their own.

    `schema_name` keeps two ledgers of one database apart. A pooler that hands one session to several clients breaks this.
    """

    def __init__(self, url: str | URL, *, schema_name: str = DEFAULT_SCHEMA, describe: Describe = _nobody_known) -> None:
        # TCP keepalive: a session whose machine is gone is noticed in about a minute, on either side
        alive = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 4, "connect_timeout": 10}
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=alive)
        self._class = zlib.crc32(f"tilewright-lease:{schema_name}".encode()) - 2**31
        self._describe = describe
        self._connection: Connection | None = None
        self._lost_because: str | None = None
        self._mine: set[int] = set()
        self._guard = threading.RLock()

    @contextmanager
    def hold(self, ids: Mapping[str, int]) -> Iterator[Lease]:
        """Take what is free; see `Leases.hold`. Raises `EnvironmentUnfit` when the server cannot be reached."""
        won: set[int] = set()
        try:
            self._take(list(ids.values()), won)
            got = [name for name, number in ids.items() if number in won]
            held = {name: self._describe(number) for name, number in ids.items() if number not in won}
            yield Lease(frozenset(got), held)
        finally:
            self._release(won)

    def is_held(self, number: int) -> bool:
        """See `Leases.is_held`."""
        return number in self.held([number])

    def held(self, numbers: Iterable[int]) -> set[int]:
        """See `Leases.held`. One question, however many they are."""
        found = self._ask(
            "SELECT CAST(objid AS bigint) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND classid = CAST(CAST(:class AS bigint) & 4294967295 AS oid)",
            {"class": self._class},
        )
        return {row[0] for row in found}.intersection(numbers)

    def end_holder(self, number: int) -> bool:
        """End the session that holds the lease of that id, wherever it runs: its run stops. For a person to call."""
        found = self._ask(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND classid = CAST(CAST(:class AS bigint) & 4294967295 AS oid) AND objid = CAST(:number AS oid)",
            {"class": self._class, "number": number},
        )
        return any(row[0] for row in found)

    def check_alive(self) -> None:
        """Raises `EnvironmentUnfit` when the session that holds the leases is gone: another run may have them by now."""
        with self._guard:
            if self._lost_because is not None:
                raise self._unfit(self._lost_because)
            if self._mine:
                self._ask("SELECT 1", {})

    def close(self) -> None:
        """Give back everything: the session ends, and its locks with it."""
        with self._guard:
            self._mine.clear()
            self._lost_because = None
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._engine.dispose()

    def _take(self, numbers: list[int], won: set[int]) -> None:
        with self._guard:
            self.check_alive()
            # one session may take its own lock again, so what is held here already must not be asked for
            wanted = sorted(set(numbers) - self._mine)
            for start in range(0, len(wanted), _IDS_PER_STATEMENT):
                rows = self._ask(
                    "SELECT number FROM unnest(CAST(:numbers AS int[])) AS number WHERE pg_try_advisory_lock(:class, number)",
                    {"numbers": wanted[start : start + _IDS_PER_STATEMENT], "class": self._class},
                )
                won.update(row[0] for row in rows)
                self._mine.update(won)

    def _release(self, numbers: set[int]) -> None:
        with self._guard:
            mine = numbers & self._mine
            self._mine -= mine
            if self._lost_because is not None:
                self._lost_because = self._lost_because if self._mine else None
            elif mine:
                self._ask(
                    "SELECT count(pg_advisory_unlock(:class, number)) FROM unnest(CAST(:numbers AS int[])) AS number",
                    {"numbers": sorted(mine), "class": self._class},
                )

    def _ask(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._guard:
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                return [tuple(row) for row in self._connection.execute(text(statement), values)]
            except DBAPIError as error:
                cause = str(error.orig).strip()
                self._lose(cause)
                raise self._unfit(cause) from error

    def _lose(self, cause: str) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
        self._connection = None
        if self._mine:
            self._lost_because = cause  # a new session would hold nothing: say so until every block has ended

    @staticmethod
    def _unfit(cause: str) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"the session that holds the leases is lost or cannot be had ({cause}); other runs may hold them now",
            kind=ErrorKind.LEDGER_UNREACHABLE,
        )
