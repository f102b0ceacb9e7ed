"""When a scene was acquired, by its name, a TIFF tag or its STAC item, and which batch window holds it.

A time without a zone is UTC. A scene that is dated before the first window, in the future, or not at all gets a verdict that says
so; it is never dropped and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from assets.scenes.grouping import Candidate
from assets.scenes.model import SceneVerdict
from resources.config_scenes import SourceConfig
from resources.errors import ErrorKind
from resources.windows import WindowCalendar

_FORMS = ("%Y:%m:%d %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y%m%d", "%Y%m%dT%H%M%S", "%d-%b-%Y %H:%M:%S")


@dataclass(frozen=True, slots=True)
class Moment:
    """When a scene was acquired (UTC); or None, and what was found instead and is allowed."""

    acquired: datetime | None
    found: str = ""


@dataclass(frozen=True, slots=True)
class Untimely:
    """Why no batch window may hold a scene."""

    verdict: SceneVerdict
    kind: ErrorKind | None
    reason: str


def moment_before_reading(candidate: Candidate, source: SourceConfig) -> Moment:
    """When the scene was acquired by its name or its item."""
    if source.acquired == "item":
        if candidate.item is None:
            return Moment(None, "found no STAC item beside the scene; allowed: an item with a datetime")
        if candidate.item.acquired is None:
            return Moment(None, "found no datetime in the STAC item; allowed: properties.datetime or start_datetime")
        return Moment(candidate.item.acquired)
    moments = {part.acquired for part in candidate.parts if part.acquired is not None}
    texts = sorted({part.date_text for part in candidate.parts if part.date_text is not None})
    if len(moments) == 1:
        return Moment(moments.pop())
    if moments:
        return Moment(None, f"found more than one date in the names of its files ({', '.join(texts)}); allowed: one")
    if texts:
        return Moment(None, f"found {texts[0]!r}, which is no date; allowed: a date of the calendar")
    return Moment(
        None, "found no {date:...} in the pattern that its name matches; allowed: one, or source.acquired = tag or item"
    )


def moment_by_tags(texts: Iterable[str], tag: str) -> Moment:
    """When the scene was acquired by the tags of its files."""
    allowed = "a time like 2020:01:31 10:20:30"
    distinct = sorted(set(texts))
    if not distinct:
        return Moment(None, f"found no tag {tag}; allowed: {allowed} in it")
    moments = {parse_time(text) for text in distinct}
    if len(moments) > 1:
        return Moment(None, f"found more than one time in tag {tag} of its files ({', '.join(distinct)}); allowed: one")
    moment = moments.pop()
    return Moment(moment, "" if moment else f"found {distinct[0]!r} in tag {tag}; allowed: {allowed}")


def parse_time(text: str) -> datetime | None:
    """The moment (UTC) of a text in ISO 8601, TIFF or a like form; None for anything else."""
    stripped = text.strip()
    moment = None
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        for form in _FORMS:
            try:
                moment = datetime.strptime(stripped, form)
                break
            except ValueError:
                continue
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def untimely(scene_id: str, moment: Moment, *, source: SourceConfig, calendar: WindowCalendar, now: datetime) -> Untimely | None:
    """Why no window may hold the scene; None if one does."""
    subject = f"scene {scene_id!r}: acquisition time ({source.acquired})"
    if moment.acquired is None:
        return Untimely(SceneVerdict.UNDATED, ErrorKind.NO_ACQUISITION_TIME, f"{subject}: {moment.found}")
    found = f"{subject}: found {moment.acquired.isoformat()}"
    if moment.acquired > now:
        return Untimely(SceneVerdict.IN_FUTURE, None, f"{found}, in the future; allowed: up to now ({now.isoformat()})")
    if calendar.window_of(moment.acquired) is not None:
        return None
    if moment.acquired < calendar.start:
        return Untimely(
            SceneVerdict.BEFORE_FIRST_WINDOW, None, f"{found}; allowed: from {calendar.start.isoformat()} (window.start)"
        )
    end = calendar.end.isoformat() if calendar.end else "now"
    return Untimely(SceneVerdict.AFTER_LAST_WINDOW, None, f"{found}; allowed: before {end} (window.end)")
