"""Values that travel between the floors: what is planned, what was tried, what came out.

One word per idea (docs/words.md). Nothing here reads a clock, a file or a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from resources.errors import ErrorKind, Verdict


class UnitState(StrEnum):
    """Where a unit stands. "Done" means COMPLETE and nothing else."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    QUARANTINED = "QUARANTINED"
    SUPERSEDED = "SUPERSEDED"
    RETIRED = "RETIRED"
    DISMISSED = "DISMISSED"


SETTLED_STATES = frozenset({UnitState.COMPLETE, UnitState.QUARANTINED, UnitState.DISMISSED})
RUNNABLE_STATES = frozenset({UnitState.PENDING, UnitState.FAILED})


class AttemptOutcome(StrEnum):
    """How an attempt ended. LOST: its worker or run vanished. VOID: does not count."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    VOID = "VOID"


class RunOutcome(StrEnum):
    """How a run of the engine ended."""

    COMPLETE = "complete"
    COMPLETE_WITH_QUARANTINE = "complete_with_quarantine"
    PARTIAL = "partial"
    STOPPED = "stopped"


Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One row for a table of the ledger database (`resources.row_tables`): column names and plain values."""

    table: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Made:
    """What a work function says of its output beside the file.

    `rows` are written in the transaction that records the completion, by the attempt that wins it and by no other. `revision`
    takes the place of the planned one: it is known only now, e.g. because it covers content that had to be fetched.
    """

    metrics: Metrics = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    revision: str | None = None


def as_made(said: Metrics | Made) -> Made:
    """What a work function returned, as `Made`."""
    return said if isinstance(said, Made) else Made(said)


Work = Callable[[Path], Metrics | Made]
Validate = Callable[[Path], None]
Recover = Callable[[Path], Metrics | Made]


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """One unit the plan wants done.

    `output_uri` is unique among COMPLETE units. Relative to the store's root it names a file, or a directory if its last part
    ends in `.pages`; `row:<table>/<natural key>` is a row of the ledger database. `inputs` are digests of the inputs the unit
    reads, for the rejected-input check; `source` names what the breaker watches. `spec` holds the key's ingredients as plain JSON
    values, so that a person can be told why a key changed.
    """

    key: str
    product: str
    window: str
    output_uri: str
    tile: str | None = None
    revision: str = ""
    inputs: tuple[str, ...] = ()
    source: str = "source"
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """All units that one partition of `asset` should have now. Empty `units`: the partition is settled, EMPTY."""

    asset: str
    partition: str
    window: str
    units: tuple[PlannedUnit, ...]
    tile: str | None = None


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """A planned unit with the picklable functions that make and validate it.

    `work(path)` writes the output to `path`, a staging name, and returns its metrics as plain JSON values, or `Made`. For a row,
    `path` is scratch that may be left unwritten, and `Made.rows` holds the row. `validate(path)` opens the staged output again
    and raises `UnitRejected` (kind INVALID_OUTPUT) if it is not what was planned. `recover(path)` says again of an output that
    was promoted but never recorded what `work` said. `replaces` is true only for window outputs, which keep one name and are
    overwritten whole.
    """

    unit: PlannedUnit
    work: Work
    validate: Validate
    recover: Recover | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """The facts of one promoted output, to be recorded."""

    unit_key: str
    attempt: int
    output_uri: str
    digest: str
    size_bytes: int
    metrics: Metrics = field(default_factory=dict)
    duration_s: float = 0.0
    rows: tuple[Row, ...] = ()
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """The end of one attempt that did not succeed.

    `outcome` FAILED counts towards the unit's bound; LOST counts only if `charged`; VOID never. `retry_at` is when a later run
    may try again (None: at once). `input_digest` is set when the failure belongs to one input.
    """

    unit_key: str
    attempt: int
    verdict: Verdict
    kind: ErrorKind
    message: str
    outcome: AttemptOutcome = AttemptOutcome.FAILED
    charged: bool = True
    retry_at: datetime | None = None
    input_digest: str | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The five numbers of a run, and what they amount to. Counts come from the ledger, never from counters in a task."""

    processed: int
    skipped: int
    failed: int
    quarantined: int
    not_attempted: int
    outcome: RunOutcome
    reason: str = ""

    @property
    def planned(self) -> int:
        """Number of units the run's partitions hold."""
        return self.processed + self.skipped + self.failed + self.quarantined + self.not_attempted
