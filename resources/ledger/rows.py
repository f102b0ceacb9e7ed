"""Rows as the ledger hands them out: frozen values, no connection behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from resources.errors import ErrorKind, Verdict
from resources.units import SETTLED_STATES, AttemptOutcome, PlannedUnit, RunOutcome, UnitState


def dump(value: Any) -> str:
    """Compact JSON text of plain values, names sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class FilePin:
    """A source file as it was when it was read: digest, and what tells cheaply that it is still the same."""

    uri: str
    size_bytes: int
    mtime_ns: int
    inode: int
    sha256: str
    first_seen: datetime


@dataclass(frozen=True, slots=True)
class PlanChange:
    """What writing a plan changed, counted in units. `duplicate_keys`: keys planned for two destinations, only the first kept."""

    new: int = 0
    restored: int = 0
    superseded: int = 0
    retired: int = 0
    unchanged: int = 0
    duplicate_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One unit. `attempts` are those counted in `round`; `attempt` is the number of the last one over all rounds."""

    key: str
    revision: str
    asset: str
    product: str
    window: str
    tile: str | None
    partition: str | None
    output_uri: str
    source: str
    inputs_json: str
    spec_json: str
    state: UnitState
    attempts: int
    round: int
    attempt: int
    error_kind: str | None
    reason: str | None
    retry_at: datetime | None
    blocked_by: str | None
    output_digest: str | None
    output_size: int | None
    metrics_json: str | None
    completed_at: datetime | None
    suspect: bool
    run_id: str | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Digests of the inputs the unit reads."""
        return tuple(json.loads(self.inputs_json))

    @property
    def spec(self) -> dict[str, Any]:
        """The ingredients of the key."""
        found: dict[str, Any] = json.loads(self.spec_json)
        return found

    @property
    def metrics(self) -> dict[str, Any]:
        """What the work function reported about the output; empty before completion."""
        found: dict[str, Any] = json.loads(self.metrics_json) if self.metrics_json else {}
        return found

    def as_planned(self) -> PlannedUnit:
        """The unit as it was planned."""
        return PlannedUnit(
            key=self.key,
            product=self.product,
            window=self.window,
            output_uri=self.output_uri,
            tile=self.tile,
            revision=self.revision,
            inputs=self.inputs,
            source=self.source,
            spec=self.spec,
        )

    @property
    def is_settled(self) -> bool:
        """True when nothing more will be done for it by itself."""
        return self.state in SETTLED_STATES


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One planned partition with its units counted by state.

    `planned` is how many units its plan listed, `units` how many distinct keys it holds: they differ when a key is not unique.
    """

    asset: str
    partition: str
    window: str | None
    tile: str | None
    planned_at: datetime
    fence: int
    planned: int
    units: int
    pending: int
    running: int
    complete: int
    failed: int
    quarantined: int
    dismissed: int
    next_due: datetime | None

    @property
    def is_settled(self) -> bool:
        """Every planned unit is COMPLETE, QUARANTINED or DISMISSED; true of an empty partition."""
        return not (self.pending or self.running or self.failed)


@dataclass(frozen=True, slots=True)
class DuePartition:
    """A partition with work left. `pending` and `failed_due` may be tried now; `_later` ones wait, the first until `next_due`.

    `attempt_sum` is the sum of the last attempt numbers of its unsettled units: it grows whenever something was tried.
    `attempts_counted` leaves out what was not charged; `planned_at` is when its plan last changed. `put_off` are
    PENDING ones that a run gave back because their source was unwell, their time come or not.
    """

    partition: str
    window: str | None
    tile: str | None
    pending: int
    pending_later: int
    running: int
    failed_due: int
    failed_later: int
    next_due: datetime | None
    attempt_sum: int
    attempts_counted: int = 0
    planned_at: datetime | None = None
    attempt_max: int = 0
    put_off: int = 0

    @property
    def unsettled(self) -> int:
        """Units that are not settled."""
        return self.pending + self.pending_later + self.running + self.failed_due + self.failed_later


@dataclass(frozen=True, slots=True)
class Counts:
    """The five numbers, from rows. Without a run, everything COMPLETE counts as processed."""

    processed: int
    skipped: int
    failed: int
    quarantined: int
    not_attempted: int
    by_state: Mapping[UnitState, int] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """Number of planned units counted."""
        return self.processed + self.skipped + self.failed + self.quarantined + self.not_attempted


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened to a unit. `what`: attempt, skip, or the word of a note (adopted, replayed, ...)."""

    at: datetime
    what: str
    run_id: str | None = None
    number: int | None = None
    round: int | None = None
    outcome: AttemptOutcome | None = None
    is_counted: bool | None = None
    error_kind: str | None = None
    reason: str | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    who: str | None = None


@dataclass(frozen=True, slots=True)
class RejectedInput:
    """An input that no unit may read until its rejection is lifted."""

    digest: str
    kind: str
    reason: str
    name: str


@dataclass(frozen=True, slots=True)
class InputRejection:
    """An input found unfit, to be recorded with one dead letter."""

    digest: str
    name: str
    kind: ErrorKind
    reason: str
    window: str | None = None


class LetterStatus(StrEnum):
    """Where a dead letter stands. Only OPEN asks for a person."""

    OPEN = "OPEN"
    REPLAYED = "REPLAYED"
    RESOLVED = "RESOLVED"
    SUPERSEDED = "SUPERSEDED"
    DISMISSED = "DISMISSED"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The record of a quarantine. `subject_key` is the unit key, or the digest of the input."""

    id: int
    subject: str
    subject_key: str
    name: str
    asset: str | None
    product: str | None
    window: str | None
    tile: str | None
    kind: str
    verdict: Verdict
    reason: str
    attempts: int
    first_at: datetime
    last_at: datetime
    audit_hash: str
    round: int
    status: LetterStatus
    closed_at: datetime | None
    who: str | None
    why: str | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the engine. `heartbeat_at` defaults to the start."""

    run_id: str
    asset: str
    partitions: tuple[str, ...]
    pid: int
    host: str
    boot_id: str
    started_at: datetime
    heartbeat_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: RunOutcome | None = None
    summary: Mapping[str, Any] | None = None
    requested_by: str | None = None


@dataclass(frozen=True, slots=True)
class RequestRow:
    """The latest request for a run of a partition.

    `unsettled` and `attempts` say what was to be done when it was made: a run that changes neither was fruitless, and `fruitless`
    counts how many were so in a row.
    """

    partition: str
    number: int
    run_key: str
    requested_at: datetime
    run_id: str | None
    state: str
    unsettled: int = 0
    attempts: int = 0
    fruitless: int = 0


@dataclass(frozen=True, slots=True)
class Marker:
    """A processed marker: the window was wholly settled under these fingerprints."""

    manifest_fingerprint: str
    config_fingerprint: str
    at: datetime


@dataclass(frozen=True, slots=True)
class HolderRow:
    """Who took the lease on a partition last."""

    asset: str
    partition: str
    partition_id: int
    run_id: str
    pid: int
    host: str
    since: datetime


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert of the outbox. `is_standing`: true still; `deliveries`: channel -> when it last took the alert."""

    id: int
    fingerprint: str
    title: str
    body: str
    severity: str
    is_standing: bool
    created_at: datetime
    sent_at: datetime | None
    times_sent: int
    deliveries: Mapping[str, datetime] = field(default_factory=dict)
