"""Opens what a project stands on, from its configuration: ledger, store, leases, engine."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from resources.config import Config
from resources.engine import Engine
from resources.executor import Executor, InlineExecutor, LocalExecutor
from resources.leases import Leases, LocalLeases, PostgresLeases
from resources.ledger import Ledger, open_ledger
from resources.store import LocalStore, open_store

_ledgers: dict[tuple[str, str, int], Ledger] = {}
_lock = threading.Lock()
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def utc_now() -> datetime:
    """The clock of a running system."""
    return datetime.now(UTC)


def open_leases(config: Config, ledger: Ledger) -> Leases:
    """Leases that live with their holder: file locks beside a SQLite ledger, advisory locks on a PostgreSQL one."""

    def describe(number: int) -> str:
        for row in ledger.holders(ids=[number]):
            return f"run {row.run_id} (process {row.pid} on {row.host})"
        return "another run"

    if config.ledger_url.startswith("postgresql"):
        return PostgresLeases(config.ledger_url, schema_name=config.ledger.schema_name, describe=describe)
    config.state_dir.mkdir(parents=True, exist_ok=True)
    return LocalLeases(config.state_dir / "leases.lock", describe=describe)


def open_project_store(config: Config, ledger: Ledger) -> LocalStore:
    """The project's store. Raises `EnvironmentUnfit` when it is not the one the ledger remembers."""
    return open_store(config.store_dir, remembered=ledger.remembered_store(), remember=ledger.remember_store)


def open_engine(
    config: Config, *, ledger: Ledger, store: LocalStore, leases: Leases, preload: Sequence[str] = (), inline: bool = False
) -> Engine:
    """An engine on this machine. `inline` computes in this process: for the few units of window outputs."""

    def local() -> Executor:
        return LocalExecutor(config.executor, preload=preload)

    factory: Callable[[], Executor] = InlineExecutor if inline else local
    return Engine(
        ledger=ledger,
        store=store,
        leases=leases,
        executor_factory=factory,
        retry=config.retry,
        boot_id=boot_id(),
        host=socket.gethostname(),
        pid=os.getpid(),
        min_free_bytes=config.store.min_free_mb * 1_000_000,
    )


def open_project_ledger(config: Config) -> Ledger:
    """The project's ledger, migrated to this version; opened once per process and URL."""
    mark = (config.ledger_url, config.ledger.schema_name, config.retry.attempts_max)
    with _lock:
        if mark not in _ledgers:
            _ledgers[mark] = open_ledger(config, clock=utc_now)
        return _ledgers[mark]


def boot_id() -> str:
    """Tells one start of this machine from the next, so that a power cut is not charged to the units it interrupted."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
