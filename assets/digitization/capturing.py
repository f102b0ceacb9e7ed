"""Taking masters in: digest, comparison with the batch's manifest, identification, capture. Once and for ever.

What is captured keeps its digest, its window and its facts, whatever becomes of the file; a file that holds other bytes later
is a fixity discrepancy and changes no key. What is damaged or cannot be identified is not captured, so that a sound file may
still come under its name. After a crash: some of a batch may be captured, the rest is at the next look, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from assets.digitization.batches import Batch, Readiness, list_batches, readiness
from assets.digitization.identification import MasterLimits, identify
from assets.digitization.masters import TAKEN_IN, Master, MasterListing, MasterVerdict, captured_master
from assets.sources.listing import Entry
from assets.sources.names import is_utf8, uri_of
from assets.sources.pinning import Digests, digest_entries
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError
from resources.ledger.facts import Capture

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject


def list_masters(project: DigitizationProject, *, now: datetime) -> MasterListing:
    """Everything the source holds now; masters of whole batches that were not there before are captured.

    Where fixity reads masters, captured ones whose files are gone are listed too. Raises `EnvironmentUnfit` (SOURCE_MISSING) when
    the source is not there, or is empty or in part closed though masters of it are captured.
    """
    found = list_batches(project.source, project.config.source)
    batches = found.batches
    uris = [entry.uri for batch in batches.values() for entry in batch.masters]
    captures = {capture.uri: capture for capture in project.ledger.captures(uris=uris)}
    masters: list[Master] = []
    for name in sorted(batches):
        masters += _Taking(project, batches[name], captures, now).masters()
    if project.config.fixity.scope != "copies":
        _refuse_lost_folders(project, found.closed)
        masters += _missing(project, {master.uri for master in masters if master.verdict in TAKEN_IN})
    return MasterListing(tuple(sorted(masters, key=lambda master: master.uri)), found.strangers)


def _refuse_lost_folders(project: DigitizationProject, closed: Mapping[str, str]) -> None:
    """A folder of captured masters that cannot be listed now is no thousand masters that are gone."""
    for folder, why in closed.items():
        begin = f"{uri_of(folder)}/"
        lost = sum(capture.uri.startswith(begin) for capture in project.ledger.captures())
        if lost:
            raise EnvironmentUnfit(
                f"source.uri: folder {uri_of(folder)!r} cannot be listed ({why}), and {lost} masters of it are captured; "
                "allowed: a folder that may be read. Mount it or mend its permissions",
                kind=ErrorKind.SOURCE_MISSING,
            )


def _missing(project: DigitizationProject, listed: Collection[str]) -> list[Master]:
    """Captured masters that are not listed. Captures are streamed only when their number says that some are missing."""
    number = project.ledger.count_captures()
    if number == len(listed):
        return []
    if not listed:
        raise EnvironmentUnfit(
            f"source.uri: found none of {number} captured masters; is it mounted? If masters are kept elsewhere once they are "
            "copied, set fixity.scope = 'copies'",
            kind=ErrorKind.SOURCE_MISSING,
        )
    return [
        replace(
            captured_master(capture),
            verdict=MasterVerdict.MISSING,
            found_sha256=None,
            kind=ErrorKind.NOT_FOUND,
            reason=f"{capture.uri!r}: file: found none; captured was sha256 {capture.sha256}: put it back",
        )
        for capture in project.ledger.captures()
        if capture.uri not in listed
    ]


class _Taking:
    """One batch, taken in as far as it can be now."""

    def __init__(self, project: DigitizationProject, batch: Batch, captures: Mapping[str, Capture], now: datetime) -> None:
        self.project = project
        self.source = project.source
        self.batch = batch
        self.now = now
        self.captures = {entry.uri: captures[entry.uri] for entry in batch.masters if entry.uri in captures}
        self.limits = MasterLimits(
            max_pixels=project.config.limits.max_pixels,
            max_pages=project.config.limits.max_pages,
            max_expansion=project.config.limits.max_expansion,
        )

    def masters(self) -> list[Master]:
        """The batch's masters with their verdicts."""
        fresh = [entry for entry in self.batch.masters if entry.uri not in self.captures]
        ready = readiness(self.batch, self.source, self.project.config.source, now=self.now)
        window = self._window(ready)
        moved = [entry for entry in self.batch.masters if self._has_moved(entry)]
        takes = ready.verdict is None and window is not None
        digests = self._digests([*moved, *(fresh if takes else ())])
        found = [self._known(entry, digests) for entry in self.batch.masters if entry.uri in self.captures]
        if not takes:
            return [*found, *(self._put_off(entry, ready, window) for entry in fresh)]
        judged = [self._judge(entry, digests, str(window)) for entry in fresh]
        return [*found, *self._capture(judged)]

    def _has_moved(self, entry: Entry) -> bool:
        capture = self.captures.get(entry.uri)
        return capture is not None and (capture.size_bytes, capture.mtime_ns) != (entry.size_bytes, entry.mtime_ns)

    def _digests(self, entries: list[Entry]) -> Digests:
        ledger = self.project.ledger
        changed = {entry.uri: entry.ctime_ns for entry in entries}
        # a file that was damaged may be copied over with its size and its time kept; what the system says of its inode tells
        known = {uri: pin for uri, pin in ledger.pins(changed).items() if changed[uri] < pin.first_seen.timestamp() * 1e9}
        return digest_entries(entries, source=self.source, book=ledger, known=known, now=self.now)

    def _window(self, ready: Readiness) -> str | None:
        """The window of the batch: that of what was captured of it, else the one that its moment lies in."""
        if self.captures:
            first = min(self.captures.values(), key=lambda capture: (capture.captured_at, capture.uri))
            return first.window
        if ready.moment is None or ready.moment > self.now:
            return None
        held = self.project.calendar.window_of(ready.moment)
        return None if held is None else held.key

    def _known(self, entry: Entry, digests: Digests) -> Master:
        master = captured_master(self.captures[entry.uri])
        found = digests.sha256.get(entry.uri, master.sha256)
        if found == master.sha256:
            return master
        reason = (
            f"{entry.uri!r}: sha256: found {found}; captured was {master.sha256}: its bytes were changed after capture. "
            "Nothing made of it changes; put the captured file back"
        )
        return replace(master, verdict=MasterVerdict.CHANGED, found_sha256=found, kind=ErrorKind.MASTER_CHANGED, reason=reason)

    def _put_off(self, entry: Entry, ready: Readiness, window: str | None) -> Master:
        verdict, reason = ready.verdict, ready.reason
        if verdict is None:
            moment = ready.moment
            is_future = moment is not None and moment > self.now
            verdict = MasterVerdict.IN_FUTURE if is_future else MasterVerdict.OUTSIDE_WINDOWS
            shown = "none" if moment is None else moment.isoformat(timespec="seconds")
            first = self.project.calendar.start
            reason = (
                f"batch {self.batch.name!r}: time: found {shown}; allowed: one within a batch window that has begun, "
                f"the first on {first:%Y-%m-%d} (window.start)"
            )
        return Master(
            uri=entry.uri,
            batch=self.batch.name,
            verdict=verdict,
            window=window,
            size_bytes=entry.size_bytes,
            mtime_ns=entry.mtime_ns,
            reason=reason,
        )

    def _judge(self, entry: Entry, digests: Digests, window: str) -> Master:
        expected = self.batch.expected_sha256(entry)
        master = Master(
            uri=entry.uri,
            batch=self.batch.name,
            verdict=MasterVerdict.CAPTURED,
            window=window,
            size_bytes=entry.size_bytes,
            mtime_ns=entry.mtime_ns,
            expected_sha256=expected,
        )
        unpinned = digests.unpinned.get(entry.uri)
        if unpinned is not None:
            verdict = MasterVerdict.UNSETTLED if unpinned.is_transient else MasterVerdict.REFUSED
            return replace(master, verdict=verdict, kind=unpinned.kind, reason=f"{entry.uri!r}: {unpinned.message}")
        sha256 = digests.sha256[entry.uri]
        master = replace(master, found_sha256=sha256)
        if not is_utf8(entry.relative):
            reason = f"{entry.uri!r}: file name: found bytes that are not UTF-8; allowed: a name in UTF-8; rename the file"
            return replace(master, verdict=MasterVerdict.REFUSED, kind=ErrorKind.UNREADABLE, reason=reason)
        if expected is not None and expected != sha256:
            reason = f"{entry.uri!r}: sha256: found {sha256}; its batch's manifest says {expected}: damaged in transfer"
            kind = ErrorKind.DAMAGED_IN_TRANSFER
            return replace(master, verdict=MasterVerdict.DAMAGED_IN_TRANSFER, kind=kind, reason=reason)
        try:
            with self.source.open(entry.uri) as stream:
                facts = identify(stream, self.limits)
            is_still = self.source.is_still(entry)
        except (OSError, TransientError) as error:
            reason = f"{entry.uri!r}: found that it cannot be read now ({error})"
            return replace(master, verdict=MasterVerdict.UNSETTLED, kind=ErrorKind.STORAGE_IO, reason=reason)
        if not is_still:
            reason = f"{entry.uri!r}: found that it changed while it was read"
            return replace(master, verdict=MasterVerdict.UNSETTLED, kind=ErrorKind.INPUT_CHANGED, reason=reason)
        if facts.fault_kind is not None:
            reason = f"{entry.uri!r}: {facts.fault}"
            return replace(master, verdict=MasterVerdict.REFUSED, kind=ErrorKind(facts.fault_kind), reason=reason, facts=facts)
        return replace(master, sha256=sha256, facts=facts)

    def _capture(self, judged: list[Master]) -> list[Master]:
        """Pin what may be; what another process pinned meanwhile stands as it was pinned."""
        taken = [master for master in judged if master.verdict is MasterVerdict.CAPTURED]
        self.project.ledger.capture(self._as_capture(master) for master in taken)
        pinned = {capture.uri: capture for capture in self.project.ledger.captures(uris=[master.uri for master in taken])}
        return [captured_master(pinned[master.uri]) if master.uri in pinned else master for master in judged]

    def _as_capture(self, master: Master) -> Capture:
        assert master.facts is not None
        assert master.sha256 is not None
        assert master.window is not None
        return Capture(
            uri=master.uri,
            sha256=master.sha256,
            size_bytes=master.size_bytes,
            mtime_ns=master.mtime_ns,
            batch=master.batch,
            window=master.window,
            captured_at=self.now,
            facts={**master.facts.to_json(), "expected_sha256": master.expected_sha256},
        )
