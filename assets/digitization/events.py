"""Preservation events: what happened to a content, once for each key, whoever asks how often.

The identifier of an event is derived from the digest of the content, the kind of event, the derivation where it is one, and the
period where it recurs; never from a run, a time or a name. So any number of retries, overlaps and kills leave one event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from resources.keys import unit_key
from resources.row_tables import nothing_to_validate, row_uri
from resources.units import Made, PlannedUnit, Row, UnitOfWork

TABLE = "preservation_events"
AGENT = "Tilewright"
_SCHEME = "1"
"""Part of every event identifier, and so never to be raised: an event that was recorded stays recorded."""


class EventType(StrEnum):
    """Kinds of events, by their names in the Library of Congress's vocabulary of PREMIS event types, joined."""

    INGESTION = "ingestion"
    DIGEST = "messageDigestCalculation"
    VALIDATION = "validation"
    MIGRATION = "migration"
    FIXITY = "fixityCheck"

    @property
    def label(self) -> str:
        """The vocabulary's label, for PREMIS."""
        return {EventType.DIGEST: "message digest calculation", EventType.FIXITY: "fixity check"}.get(self, self.value)

    @property
    def operation(self) -> str:
        """The operation of a unit that records it."""
        return f"event:{self.value}"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `at` is when it happened, where that is known before it is recorded; it is no part of the identifier.

    `derivation` is the unit key of the derivation that a migration is; `linked` names the objects it concerns, with their roles.
    """

    type: EventType
    content_digest: str
    outcome: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    linked: tuple[Mapping[str, str], ...] = ()
    period: str | None = None
    derivation: str | None = None
    at: datetime | None = None

    @property
    def event_id(self) -> str:
        """The identifier (64 hex), and the key of the unit that records it."""
        return event_id(self.type, self.content_digest, period=self.period, derivation=self.derivation)

    def row(self) -> Row:
        """The row that records it."""
        values: dict[str, Any] = {
            "event_id": self.event_id,
            "event_type": self.type.value,
            "content_digest": self.content_digest,
            "period": self.period,
            "operation": self.type.operation if self.derivation is None else f"{self.type.operation} {self.derivation}",
            "outcome": self.outcome,
            "detail": dict(self.detail),
            "linked": [dict(one) for one in self.linked],
            "agent": AGENT,
        }
        return Row(TABLE, values if self.at is None else {**values, "at": self.at})


def event_id(kind: EventType, content_digest: str, *, period: str | None = None, derivation: str | None = None) -> str:
    """The identifier of an event (64 hex), made of nothing but its arguments."""
    return unit_key(**_ingredients(kind, content_digest, period=period, derivation=derivation))


def _ingredients(kind: EventType, content_digest: str, *, period: str | None, derivation: str | None) -> dict[str, Any]:
    return {
        "operation": kind.operation,
        "version": _SCHEME,
        "settings": {},
        "destination": {"period": period},
        "inputs": {"content": content_digest, "derivation": derivation},
    }


def event_unit(
    kind: EventType, content_digest: str, *, window: str, period: str | None = None, derivation: str | None = None
) -> PlannedUnit:
    """The planned unit that records an event: its output is a row."""
    ingredients = _ingredients(kind, content_digest, period=period, derivation=derivation)
    key = unit_key(**ingredients)
    return PlannedUnit(
        key=key, product=kind.operation, window=window, output_uri=row_uri(TABLE, key), source="ledger", spec=ingredients
    )


def event_work(event: Event, *, window: str) -> UnitOfWork:
    """The unit of work that records an event whose outcome is known."""
    unit = event_unit(event.type, event.content_digest, window=window, period=event.period, derivation=event.derivation)
    return UnitOfWork(unit, partial(record_event, event), nothing_to_validate)


def record_event(event: Event, path: Path) -> Made:  # noqa: ARG001 - every work function takes a path
    """The row of an event, for the transaction that records its unit complete."""
    return Made(metrics={"outcome": event.outcome}, rows=(event.row(),))
