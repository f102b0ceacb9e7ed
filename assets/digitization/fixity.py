"""Fixity: every master and every copy is read again once in a period, and what is found is an event, never a repair.

A content is due from a moment that its digest decides (`slots`). One whose last check failed, or whose file is seen to be another
than was captured, is read the same day, and again every day until it is well, so that a restored file clears the finding soon.
What differs or is gone is an event with outcome `fail`; the unit that found it is complete: it did what it was to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.digitization.capturing import list_masters
from assets.digitization.copies import REFUSED
from assets.digitization.events import Event, EventType, event_unit
from assets.digitization.masters import MasterVerdict
from assets.digitization.shape import COPIES, FIXITY
from assets.digitization.slots import is_due
from assets.partition_batch import PartitionBatch
from assets.sources.folder import FolderSource
from assets.sources.source import Source
from resources.ledger import UnitRow
from resources.ledger.facts import EventRow
from resources.row_tables import nothing_to_validate
from resources.units import Made, PartitionPlan, PlannedUnit, UnitOfWork, UnitState
from resources.windows import BatchWindow

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject

_MISSING = "nothing: it is not there"
_PERIODS_LOOKED_AT = 2


@dataclass(frozen=True, slots=True)
class FixityRequest:
    """What to read: the content's digest, and the names under which it should be in a source."""

    content_digest: str
    period: str
    objects: tuple[str, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An object that does not hold its content."""

    object: str
    expected: str
    found: str
    at: datetime


class FixityBatch(PartitionBatch):
    """Partitions of fixity checks are periods of their own. Writes its plan when made: what has come due by now."""

    asset = FIXITY

    def __init__(self, project: DigitizationProject, periods: Sequence[str]) -> None:
        super().__init__(periods)
        self._project = project
        self._copies = _copies(project)
        now = project.ledger.clock()
        changed = list_masters(project, now=now).with_verdict(MasterVerdict.CHANGED, MasterVerdict.MISSING)
        self._suspects = {master.sha256 for master in changed if master.sha256 is not None}
        project.ledger.write_plan(
            FIXITY, [PartitionPlan(FIXITY, key, key, tuple(self._planned(key, now))) for key in dict.fromkeys(periods)]
        )

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units. One whose content nobody holds any more is left out."""
        store = FolderSource(self._project.config.store_dir)
        specs = {row.key: row.spec for row in rows}
        contents = {spec["inputs"]["content"] for spec in specs.values()}
        objects: dict[str, list[str]] = {}
        for capture in self._project.ledger.captures(sha256s=sorted(contents)):
            objects.setdefault(capture.sha256, []).append(capture.uri)
        for digest in contents & self._copies.keys():
            objects[digest] = [row.output_uri for row in self._copies[digest]]
        for row in rows:
            spec = specs[row.key]
            digest, period = spec["inputs"]["content"], spec["destination"]["period"]
            if digest not in objects:
                continue
            source = store if digest in self._copies else self._project.source
            request = FixityRequest(digest, period, tuple(objects[digest]), source)
            unit = event_unit(EventType.FIXITY, digest, window=row.window, period=period)
            yield UnitOfWork(unit, partial(check_fixity, request), nothing_to_validate)

    def _planned(self, key: str, now: datetime) -> Iterator[PlannedUnit]:
        period = self._project.fixity_calendar.window(key)
        done: dict[str, None] = {}
        for event in self._project.ledger.events(window=key, event_type=EventType.FIXITY.value):
            done[event.content_digest] = None
            yield _unit(event.content_digest, period, event.period or key)
        known: set[str] = set()
        for digest, since in self._contents():
            known.add(digest)
            if digest not in done and is_due(digest, period, known_since=since, now=now):
                yield _unit(digest, period, key)
        if period.start <= now < period.end:
            last = last_checks(self._project, now=now)
            failing = {digest for digest, event in last.items() if event.outcome == "fail"}
            for digest in sorted((failing | self._suspects) & known):
                if digest not in last or last[digest].at.date() < now.date():
                    yield _unit(digest, period, now.date().isoformat())

    def _contents(self) -> Iterator[tuple[str, datetime]]:
        """Every content with the time since which it is known."""
        scope = self._project.config.fixity.scope
        if scope != "copies":
            seen: set[str] = set()
            for capture in self._project.ledger.captures():
                if capture.sha256 not in seen:
                    seen.add(capture.sha256)
                    yield capture.sha256, capture.captured_at
        if scope != "masters":
            for digest, rows in self._copies.items():
                yield digest, min(row.completed_at for row in rows if row.completed_at is not None)


def _unit(digest: str, period: BatchWindow, name: str) -> PlannedUnit:
    return event_unit(EventType.FIXITY, digest, window=period.key, period=name)


def _copies(project: DigitizationProject) -> dict[str, list[UnitRow]]:
    """Completed copies by the digest of their content."""
    found: dict[str, list[UnitRow]] = {}
    windows = [row.partition for row in project.ledger.partition_rows(COPIES)]
    for row in project.ledger.planned(COPIES, windows):
        if row.state is UnitState.COMPLETE and row.output_digest and row.completed_at and row.spec["version"] != REFUSED:
            found.setdefault(row.output_digest, []).append(row)
    return found


def check_fixity(request: FixityRequest, path: Path) -> Made:  # noqa: ARG001 - every work function takes a path
    """Read every object of a content and say what was found. Raises `EnvironmentUnfit` (SOURCE_MISSING) without its source.

    An error of the system while reading (`OSError`) is the caller's table to judge: a disk that fails now may answer later.
    """
    found = {name: _found(request.source, name) for name in request.objects}
    if _MISSING in found.values():
        # a disk that is not mounted is not a thousand lost masters
        request.source.require()
    looked = [{"object": name, "expected": request.content_digest, "found": digest} for name, digest in found.items()]
    outcome = "success" if all(one["found"] == request.content_digest for one in looked) else "fail"
    linked = tuple({"object": one["object"], "role": "source"} for one in looked)
    event = Event(EventType.FIXITY, request.content_digest, outcome, {"objects": looked}, linked, period=request.period)
    return Made(metrics={"outcome": outcome, "objects": len(looked)}, rows=(event.row(),))


def _found(source: Source, name: str) -> str:
    try:
        return source.digest(name)
    except FileNotFoundError:
        return _MISSING


def last_checks(project: DigitizationProject, *, now: datetime) -> dict[str, EventRow]:
    """The last fixity event of each content, over this period and the one before."""
    current = project.fixity_calendar.window_of(now)
    if current is None:
        return {}
    before = project.fixity_calendar.window_of(current.start - timedelta(microseconds=1))
    last: dict[str, EventRow] = {}
    for period in (before, current):
        if period is None:
            continue
        for event in project.ledger.events(window=period.key, event_type=EventType.FIXITY.value):
            if event.content_digest not in last or event.at >= last[event.content_digest].at:
                last[event.content_digest] = event
    return last


def open_mismatches(project: DigitizationProject, *, now: datetime) -> list[Mismatch]:
    """Objects that did not hold their content when last read, by name."""
    found = []
    for event in last_checks(project, now=now).values():
        if event.outcome != "fail":
            continue
        looked: list[dict[str, Any]] = event.detail["objects"]
        found += [
            Mismatch(one["object"], one["expected"], one["found"], event.at) for one in looked if one["found"] != one["expected"]
        ]
    return sorted(found, key=lambda one: one.object)
