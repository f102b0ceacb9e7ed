"""What was captured, observed, recorded and said to have happened: values as the ledger hands them out and takes them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Capture:
    """A file as it was when it was taken in: pinned once and for ever. `facts` are plain JSON values about its content."""

    uri: str
    sha256: str
    size_bytes: int
    mtime_ns: int
    batch: str
    window: str
    captured_at: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the content of a URI was under a version token: an ETag, or its time and size."""

    uri: str
    token: str
    digest: str
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class EventRow:
    """One preservation event. `detail` and `linked` are the plain JSON values that were written."""

    event_id: str
    event_type: str
    content_digest: str
    period: str | None
    operation: str
    outcome: str
    detail: Any
    linked: Any
    agent: str
    at: datetime
    unit_key: str
    window: str


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One inspection record. `left_at` is set where another took its place, or it was set aside; `why` says which."""

    unit_key: str
    window: str
    site: str
    period: str
    source_uri: str
    content_digest: str
    page_count: int
    extraction_version: str
    revision: str
    fields: Any
    findings: Any
    recorded_at: datetime
    left_at: datetime | None = None
    why: str | None = None
