"""Whether a scene's files may be read now: they are files, they stand still, and none is still to come.

Asked before anything is opened. What is not ready waits and is asked again at the next look; what can never be ready is rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from assets.scenes.fitness import names_of
from assets.scenes.grouping import Candidate
from assets.scenes.model import SceneVerdict
from assets.scenes.naming import DoneMarker
from assets.sources.listing import Entry
from assets.sources.names import is_utf8
from assets.sources.pinning import is_pinned
from resources.errors import ErrorKind
from resources.ledger.rows import FilePin


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a scene's files are not read."""

    verdict: SceneVerdict
    kind: ErrorKind | None
    reason: str


def unusable(entries: Sequence[Entry]) -> Obstacle | None:
    """What is no file, or has a name that GDAL cannot be given."""
    for entry in entries:
        if entry.found is not None:
            reason = f"{entry.uri!r}: file: found {entry.found}; allowed: a file, or a link to one"
            return Obstacle(SceneVerdict.REJECTED, ErrorKind.UNREADABLE, reason)
        if not is_utf8(entry.relative):
            reason = f"{entry.uri!r}: file name: found bytes that are not UTF-8; allowed: a name in UTF-8; rename the file"
            return Obstacle(SceneVerdict.REJECTED, ErrorKind.UNREADABLE, reason)
    return None


def unmarked(
    scene_id: str, entries: Sequence[Entry], *, marker: DoneMarker, listed: Mapping[str, Entry]
) -> Obstacle | tuple[Entry, ...]:
    """The files written after the scene's done marker, of which it does not speak; or that there is no marker."""
    wanted = marker.name_for(scene_id)
    beside = {f"{entry.folder}/{wanted}" if entry.folder else wanted for entry in entries}
    marked_ns = max((listed[path].mtime_ns for path in beside if path in listed), default=None)
    if marked_ns is None:
        reason = f"scene {scene_id!r}: done marker: found none; allowed: {wanted!r} beside its files; waiting for it"
        return Obstacle(SceneVerdict.WAITING, None, reason)
    return tuple(entry for entry in entries if entry.mtime_ns > marked_ns)


def unsettled(entries: Sequence[Entry], *, known: Mapping[str, FilePin], settle_s: float, now: datetime) -> Obstacle | None:
    """A file that was written too short a time ago, unless it is pinned and stands as it was."""
    for entry in entries if settle_s > 0 else ():
        age_s = _age_s(entry, now)
        if age_s < settle_s and not is_pinned(entry, known.get(entry.uri)):
            reason = (
                f"{entry.uri!r}: age: found {max(age_s, 0.0):.1f} s since it was last written; "
                f"allowed: {settle_s:g} s (source.settle_s); looked at again next time"
            )
            return Obstacle(SceneVerdict.UNSETTLED, None, reason)
    return None


def _age_s(entry: Entry, now: datetime) -> float:
    """Seconds since a file was last written; by ctime where mtime lies in the future, as a copied file's may."""
    age = now.timestamp() - entry.mtime_ns / 1e9
    return age if age >= 0 else now.timestamp() - entry.ctime_ns / 1e9


def incomplete(candidate: Candidate, required: Collection[str]) -> Obstacle | None:
    """Bands in files of their own that are not there yet. A file that holds all bands is judged when it is open."""
    if candidate.problem is not None or any(part.is_whole for part in candidate.parts):
        return None
    have = {band.name for part in candidate.parts for band in part.bands}
    missing = sorted((set(required) - have) | set(candidate.absent))
    if not missing:
        return None
    reason = f"scene {candidate.scene_id!r}: bands: found {names_of(have)}; allowed: also {names_of(missing)}"
    if candidate.item is not None and not candidate.absent:
        reason = f"{reason}, which its STAC item does not name"
        return Obstacle(SceneVerdict.REJECTED, ErrorKind.MISSING_BAND, reason)
    return Obstacle(SceneVerdict.WAITING, ErrorKind.MISSING_BAND, f"{reason}; waiting for them")
