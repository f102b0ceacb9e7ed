"""Masters as a project sees them: captured once and for ever, refused, waiting, or changed since they were captured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from assets.digitization.model import MasterFacts
from assets.sources.names import Stranger
from resources.errors import ErrorKind
from resources.ledger.facts import Capture


class MasterVerdict(StrEnum):
    """What is the case with a file of a batch.

    CAPTURED: taken in, its digest pinned. CHANGED: taken in, and the file holds other bytes now. MISSING: taken in, and the file
    is not there now, though fixity expects it. REFUSED, DAMAGED_IN_TRANSFER: not taken in. UNSETTLED, WAITING: its batch is not
    whole yet. The others: its batch's time lies in no window.
    """

    CAPTURED = "CAPTURED"
    CHANGED = "CHANGED"
    MISSING = "MISSING"
    REFUSED = "REFUSED"
    DAMAGED_IN_TRANSFER = "DAMAGED_IN_TRANSFER"
    UNSETTLED = "UNSETTLED"
    WAITING = "WAITING"
    IN_FUTURE = "IN_FUTURE"
    OUTSIDE_WINDOWS = "OUTSIDE_WINDOWS"


TAKEN_IN = frozenset({MasterVerdict.CAPTURED, MasterVerdict.CHANGED, MasterVerdict.MISSING})
NOT_TAKEN_IN = frozenset({MasterVerdict.REFUSED, MasterVerdict.DAMAGED_IN_TRANSFER})


@dataclass(frozen=True, slots=True)
class Master:
    """One file of a batch. `sha256` is the captured digest where there is a capture, `found_sha256` that of the file now.

    `window` is the capture's, or the one its batch would come into. `expected_sha256` is the batch manifest's.
    """

    uri: str
    batch: str
    verdict: MasterVerdict
    window: str | None
    size_bytes: int = 0
    mtime_ns: int = 0
    sha256: str | None = None
    found_sha256: str | None = None
    expected_sha256: str | None = None
    captured_at: datetime | None = None
    facts: MasterFacts | None = None
    kind: ErrorKind | None = None
    reason: str = ""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells one state of it from another, for a window's fingerprint."""
        return {
            "uri": self.uri,
            "verdict": self.verdict.value,
            "sha256": self.sha256,
            "found": self.found_sha256,
            "kind": None if self.kind is None else self.kind.value,
            "expected": self.expected_sha256,
        }


@dataclass(frozen=True, slots=True)
class MasterListing:
    """Everything the source holds now, by uri, and what of it is no master."""

    masters: tuple[Master, ...]
    strangers: tuple[Stranger, ...]

    def of_window(self, window: str) -> tuple[Master, ...]:
        """The masters of a window, settled or not."""
        return tuple(master for master in self.masters if master.window == window)

    def with_verdict(self, *verdicts: MasterVerdict) -> tuple[Master, ...]:
        """The masters with one of these verdicts."""
        return tuple(master for master in self.masters if master.verdict in verdicts)


def captured_master(capture: Capture) -> Master:
    """A capture as a master; its file is not looked at."""
    facts = dict(capture.facts)
    return Master(
        uri=capture.uri,
        batch=capture.batch,
        verdict=MasterVerdict.CAPTURED,
        window=capture.window,
        size_bytes=capture.size_bytes,
        mtime_ns=capture.mtime_ns,
        sha256=capture.sha256,
        found_sha256=capture.sha256,
        expected_sha256=facts.get("expected_sha256"),
        captured_at=capture.captured_at,
        facts=MasterFacts.from_json(facts),
    )


def first_of_each(captures: Iterable[Capture]) -> dict[str, Capture]:
    """The first capture of each digest, from captures in their order: its window is the one that derives the content."""
    first: dict[str, Capture] = {}
    for capture in captures:
        first.setdefault(capture.sha256, capture)
    return first
