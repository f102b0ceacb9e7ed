"""The ledger: what is planned, what was tried, what is complete. Open it with `open_ledger`.

Tables in `schema`, one module for each group of promises (`plan`, `attempts`, `dead_letters`, ...), and `Ledger`, which is all of
them. SQLite and PostgreSQL keep the same promises with the same statements.
"""

from __future__ import annotations

from resources.ledger.facade import Ledger
from resources.ledger.facts import Capture, EventRow, Observation, RecordRow
from resources.ledger.opening import open_ledger, open_ledger_at
from resources.ledger.rows import (
    AlertRow,
    Counts,
    DeadLetter,
    DuePartition,
    FilePin,
    HistoryEntry,
    HolderRow,
    InputRejection,
    LetterStatus,
    Marker,
    PartitionRow,
    PlanChange,
    RejectedInput,
    RequestRow,
    RunRow,
    UnitRow,
)

__all__ = [
    "AlertRow",
    "Capture",
    "Counts",
    "DeadLetter",
    "DuePartition",
    "EventRow",
    "FilePin",
    "HistoryEntry",
    "HolderRow",
    "InputRejection",
    "Ledger",
    "LetterStatus",
    "Marker",
    "Observation",
    "PartitionRow",
    "PlanChange",
    "RecordRow",
    "RejectedInput",
    "RequestRow",
    "RunRow",
    "UnitRow",
    "open_ledger",
    "open_ledger_at",
]
