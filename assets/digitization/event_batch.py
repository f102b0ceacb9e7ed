"""The preservation events of a window: of each content that was first captured in it, and of each copy that was made there.

Ingestion, digest and structure check happened when the content was captured, the migration when its copy was completed; their
times are those, whenever they are written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assets.digitization.copies import REFUSED
from assets.digitization.events import Event, EventType, event_unit, event_work
from assets.digitization.masters import first_of_each
from assets.digitization.model import MasterFacts
from assets.digitization.shape import COPIES, EVENTS
from assets.partition_batch import PartitionBatch
from resources.ledger import UnitRow
from resources.ledger.facts import Capture
from resources.units import PartitionPlan, PlannedUnit, UnitOfWork, UnitState

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject

_AT_CAPTURE = (EventType.INGESTION, EventType.DIGEST, EventType.VALIDATION)


class EventsBatch(PartitionBatch):
    """Partitions of preservation events are batch windows. Writes its plan when made."""

    asset = EVENTS

    def __init__(self, project: DigitizationProject, windows: Sequence[str]) -> None:
        super().__init__(windows)
        self._project = project
        ledger = project.ledger
        ledger.write_plan(
            EVENTS, (PartitionPlan(EVENTS, window, window, tuple(self._planned(window))) for window in dict.fromkeys(windows))
        )

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units."""
        contents = [row.spec["inputs"]["content"] for row in rows]
        first = first_of_each(self._project.ledger.captures(sha256s=contents))
        derived = {row.spec["inputs"]["derivation"] for row in rows} - {None}
        copies = {row.key: row for row in self._project.ledger.units(keys=sorted(derived))} if derived else {}
        for row in rows:
            capture = first.get(row.spec["inputs"]["content"])
            event = None if capture is None else _event(row.spec, capture, copies)
            if event is not None:
                yield event_work(event, window=row.window)

    def _planned(self, window: str) -> Iterator[PlannedUnit]:
        ledger = self._project.ledger
        contents = dict.fromkeys(capture.sha256 for capture in ledger.captures(window=window))
        first = first_of_each(ledger.captures(sha256s=contents))
        for sha256 in contents:
            if first[sha256].window == window:
                yield from (event_unit(kind, sha256, window=window) for kind in _AT_CAPTURE)
        for row in ledger.planned(COPIES, [window]):
            if row.state is UnitState.COMPLETE and row.spec["version"] != REFUSED:
                yield event_unit(EventType.MIGRATION, row.spec["inputs"], window=window, derivation=row.key)


def _event(spec: dict[str, Any], capture: Capture, copies: dict[str, UnitRow]) -> Event | None:
    """The event that a unit records; None when the copy that it speaks of is not there any more."""
    kind = EventType(spec["operation"].partition(":")[2])
    sha256 = capture.sha256
    if kind is EventType.MIGRATION:
        copy = copies.get(spec["inputs"]["derivation"])
        return None if copy is None or copy.output_digest is None else migration_event(capture, copy)
    facts = MasterFacts.from_json(capture.facts)
    master = ({"object": capture.uri, "role": "source"},)
    detail: dict[str, Any] = {
        EventType.INGESTION: {"batch": capture.batch, "uri": capture.uri, "size_bytes": capture.size_bytes},
        EventType.DIGEST: {"algorithm": "SHA-256", "digest": sha256, "expected": capture.facts.get("expected_sha256")},
        EventType.VALIDATION: {
            "format": facts.format,
            "pages": len(facts.pages),
            "checked": "format by content, directories, every strip or tile within the file, declared sizes",
        },
    }[kind]
    return Event(kind, sha256, "success", detail, master, at=capture.captured_at)


def migration_event(capture: Capture, copy: UnitRow) -> Event:
    """The event of a completed derivation, which links master and copy and says what was converted."""
    metrics = copy.metrics
    detail = {
        "operation": f"{copy.spec['operation']}/{copy.spec['version']}",
        "settings": copy.spec["settings"],
        "lossless": metrics.get("lossless"),
        "statements": metrics.get("statements", []),
        "pages": len(metrics.get("pages", [])),
        "copy": copy.output_uri,
        "copy_digest": copy.output_digest,
        "copy_bytes": copy.output_size,
    }
    linked = ({"object": capture.uri, "role": "source"}, {"object": copy.output_uri, "role": "outcome"})
    return Event(EventType.MIGRATION, capture.sha256, "success", detail, linked, derivation=copy.key, at=copy.completed_at)
