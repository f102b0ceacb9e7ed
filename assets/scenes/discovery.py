"""Every scene of the source with its verdict: what is there, what may be used, and why the rest may not.

Nothing that was seen is left out, one bad file stops no other, and a file is hashed and opened once while it stands still.
The order of questions is the order of cost: names, then time, then settling, then digests, then a look into the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

import shapely
from shapely.geometry.base import BaseGeometry

from assets.grid import read_area
from assets.scenes.fitness import band_digest, bands_of_part, fault_of, united
from assets.scenes.grouping import Candidate, Part, group
from assets.scenes.inspection import Finding, Inspector, Limits
from assets.scenes.model import BandRef, Scene, SceneListing, SceneVerdict
from assets.scenes.naming import DoneMarker, compile_patterns, first_match
from assets.scenes.readiness import Obstacle, incomplete, unmarked, unsettled, unusable
from assets.scenes.stac_items import ITEM_BYTES_MOST, Item, read_item
from assets.scenes.timing import Moment, moment_before_reading, moment_by_tags, untimely
from assets.sources.folder import FolderSource
from assets.sources.listing import Entry, Listing, list_source
from assets.sources.names import Stranger, path_of, uri_of
from assets.sources.pinning import Digests, PinBook, digest_entries
from resources.config_scenes import ScenesConfig
from resources.errors import EnvironmentUnfit, ErrorKind
from resources.keys import digest_of
from resources.ledger.rows import FilePin
from resources.windows import WindowCalendar


def find_scenes(
    config: ScenesConfig,
    *,
    ledger: PinBook,
    required_bands: Collection[str] = (),
    now: datetime,
    inspector: Inspector | None = None,
) -> SceneListing:
    """Every scene of the source, of all windows, in the order of scene ids.

    `required_bands` are the bands that all products together ask for; a scene is ready when it has them (empty: whatever it has).
    Files of other bands are listed and left shut. Files that `ledger` knows and that stand still are neither hashed nor opened.
    `inspector` lends its children to several looks. Raises `EnvironmentUnfit` (SOURCE_MISSING: a person must act) and
    `ConfigurationError`.

    After a crash: pins and facts are written as they are found; the next look goes on from there.
    """
    look = _Look(
        config=config,
        pins=ledger,
        required=frozenset(required_bands),
        now=now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC),
        inspector=inspector,
    )
    return look.listing()


@dataclass(slots=True)
class _Ready:
    """A candidate whose files are hashed: digest of each part, by uri of its file."""

    candidate: Candidate
    digest: str
    part_digests: dict[str, str]
    findings: dict[str, Finding] = field(default_factory=dict)


class _Look:
    def __init__(
        self, *, config: ScenesConfig, pins: PinBook, required: frozenset[str], now: datetime, inspector: Inspector | None
    ) -> None:
        self.config = config
        self.source_dir = config.source_dir
        self.pins = pins
        self.required = required
        self.now = now
        self.limits = Limits.from_config(config.source, workers=min(2, config.executor.workers))
        self.inspector = inspector
        self.patterns = compile_patterns(config.source.patterns)
        self.marker = DoneMarker(config.source.done_marker) if config.source.done_marker else None
        self.calendar = WindowCalendar(config.window)
        self.hashed = 0
        self.opened = 0

    @cached_property
    def area(self) -> BaseGeometry:
        area = read_area(self.config)
        shapely.prepare(area)
        return area

    def listing(self) -> SceneListing:
        found = list_source(
            self.source_dir,
            recursive=self.config.source.recursive,
            is_input_name=lambda path: first_match(self.patterns, path) is not None,
        )
        if found.is_empty and (known := len(self.pins.all_pins())):
            raise EnvironmentUnfit(
                f"source.uri: {str(self.source_dir)!r} is empty, but {known} files of it are known; is it not mounted? "
                "If it is meant to be empty, put any file into it",
                kind=ErrorKind.SOURCE_MISSING,
            )
        self._refuse_lost_folders(found)
        known_pins = self.pins.pins([entry.uri for entry in found.entries.values()])
        grouping = group(
            found,
            patterns=self.patterns,
            items=self._items(list(found.entries.values())),
            marker=self.marker,
            required=self.required,
            source_dir=str(self.source_dir),
        )
        scenes: list[Scene] = []
        ready: list[Candidate] = []
        for candidate in grouping.candidates:
            early = self._before_reading(candidate, found, known_pins)
            if early is None:
                ready.append(candidate)
            else:
                scenes.append(early)
        scenes += self._read(ready, known_pins)
        strangers = [*found.strangers, *(self._stranger(found.entries[path]) for path in grouping.strangers)]
        return SceneListing(
            scenes=tuple(sorted(scenes, key=lambda scene: scene.scene_id)),
            strangers=tuple(sorted(strangers, key=lambda stranger: stranger.uri)),
            files_seen=len(found.entries),
            files_hashed=self.hashed,
            files_opened=self.opened,
        )

    def _refuse_lost_folders(self, found: Listing) -> None:
        """A folder that held scenes and cannot be listed now must not look like scenes that were withdrawn."""
        if not found.closed:
            return
        known = list(self.pins.all_pins())
        for folder, why in found.closed.items():
            lost = sum(uri.startswith(f"{uri_of(folder)}/") for uri in known)
            if lost:
                raise EnvironmentUnfit(
                    f"source.uri: folder {uri_of(folder)!r} in {str(self.source_dir)!r} cannot be listed ({why}), and {lost} "
                    "files of it are known; allowed: a folder that may be read. Mount it or mend its permissions, or remove it",
                    kind=ErrorKind.SOURCE_MISSING,
                )

    @staticmethod
    def _stranger(entry: Entry) -> Stranger:
        return Stranger(entry.uri, entry.found or "matches no pattern of source.patterns, and no STAC item names it")

    def _items(self, entries: Sequence[Entry]) -> dict[str, Item]:
        """The STAC items of the source. Each `.json` is read at every look: it says which files there are to look for."""
        items = {}
        for entry in entries:
            if entry.found is not None or not entry.name.lower().endswith(".json") or entry.size_bytes > ITEM_BYTES_MOST:
                continue
            try:
                content = path_of(entry.uri, self.source_dir).read_bytes()
            except OSError:
                continue
            item = read_item(content, fallback_id=uri_of(entry.name.rpartition(".")[0]))
            if item is not None:
                items[entry.relative] = item
        return items

    # --- what needs no reading

    def _before_reading(self, candidate: Candidate, listing: Listing, known: Mapping[str, FilePin]) -> Scene | None:
        """The scene, if its files need not be read to judge it."""
        entries = self._needed_entries(candidate)
        obstacle = unusable(entries)
        if obstacle is None and candidate.problem is not None and candidate.problem[0] is not ErrorKind.DUPLICATE_SCENE:
            obstacle = Obstacle(SceneVerdict.REJECTED, *candidate.problem)
        if obstacle is None and self.config.source.acquired != "tag":
            late = self._untimely(candidate, moment_before_reading(candidate, self.config.source))
            if late is not None:
                return late
        obstacle = obstacle or self._not_ready(candidate, entries, listing, known)
        if obstacle is None:
            return None
        if obstacle.verdict is SceneVerdict.REJECTED and obstacle.kind is not None:
            return self._rejected(candidate, obstacle.kind, obstacle.reason)
        return self._scene(candidate, obstacle.verdict, obstacle.kind, obstacle.reason)

    def _not_ready(
        self, candidate: Candidate, entries: Sequence[Entry], listing: Listing, known: Mapping[str, FilePin]
    ) -> Obstacle | None:
        if self.marker is not None:
            after_marker = unmarked(candidate.scene_id, entries, marker=self.marker, listed=listing.entries)
            if isinstance(after_marker, Obstacle):
                return after_marker
            entries = after_marker
        settling = unsettled(entries, known=known, settle_s=self.config.source.settle_s, now=self.now)
        return settling or incomplete(candidate, self.required)

    def _untimely(self, candidate: Candidate, moment: Moment, *, digest: str = "") -> Scene | None:
        why = untimely(candidate.scene_id, moment, source=self.config.source, calendar=self.calendar, now=self.now)
        if why is None:
            return None
        return self._scene(candidate, why.verdict, why.kind, why.reason, digest=digest, acquired=moment.acquired)

    # --- what needs reading

    def _read(self, candidates: Sequence[Candidate], known: Mapping[str, FilePin]) -> list[Scene]:
        entries = {entry.uri: entry for candidate in candidates for entry in self._needed_entries(candidate)}
        digests = digest_entries(
            [entries[uri] for uri in sorted(entries)],
            source=FolderSource(self.source_dir),
            book=self.pins,
            known=known,
            now=self.now,
        )
        self.hashed += digests.hashed
        scenes: list[Scene] = []
        ready: list[_Ready] = []
        for candidate in candidates:
            judged = self._hashed(candidate, digests)
            if isinstance(judged, Scene):
                scenes.append(judged)
            else:
                ready.append(judged)
        self._look_into(ready)
        return scenes + [self._judge(item) for item in ready]

    def _hashed(self, candidate: Candidate, digests: Digests) -> Scene | _Ready:
        needed = self._needed(candidate)
        unpinned = [
            (entry, digests.unpinned[entry.uri]) for entry in self._needed_entries(candidate) if entry.uri in digests.unpinned
        ]
        for entry, why in sorted(unpinned, key=lambda found: found[1].is_transient):
            reason = f"{entry.uri!r}: {why.message}"
            if why.is_transient:
                return self._scene(candidate, SceneVerdict.UNSETTLED, why.kind, f"{reason}; looked at again next time")
            return self._rejected(candidate, why.kind, reason)
        parts = {part.entry.uri: _part_digest(part, digests.sha256) for part in needed}
        bands = [
            [place.name, place.index, band_digest(parts[part.entry.uri], place)]
            for part in needed
            for place in part.bands
            if not self.required or place.name in self.required
        ]
        whole = sorted(parts[part.entry.uri] for part in needed if part.is_whole)
        digest = digest_of({"scene": candidate.scene_id, "bands": sorted(bands), "whole": whole})
        if candidate.problem is not None:
            kind, message = candidate.problem
            return self._scene(candidate, SceneVerdict.REJECTED, kind, message, digest=digest)
        return _Ready(candidate, digest, parts)

    def _needed(self, candidate: Candidate) -> list[Part]:
        """The parts that are read: files of bands that nobody asks for are left shut."""
        return [
            part
            for part in candidate.parts
            if part.is_whole or not self.required or any(band.name in self.required for band in part.bands)
        ]

    def _needed_entries(self, candidate: Candidate) -> list[Entry]:
        files = [file for part in self._needed(candidate) for file in (part.entry, *part.sidecars)]
        return files if candidate.item_entry is None else [*files, candidate.item_entry]

    def _look_into(self, ready: Sequence[_Ready]) -> None:
        """Facts about each needed file, kept under its digest, or found by a bounded child."""
        wanted = {
            self.limits.cache_key(item.part_digests[part.entry.uri]): part
            for item in ready
            for part in self._needed(item.candidate)
        }
        findings = {key: Finding.from_json(kept) for key, kept in self.pins.inspection(sorted(wanted)).items()}
        unknown = [
            (key, part) for key, part in sorted(wanted.items(), key=lambda found: found[1].entry.uri) if key not in findings
        ]
        self.opened += len(unknown)
        fresh: dict[str, dict[str, object]] = {}
        with nullcontext(self.inspector) if self.inspector else Inspector(self.limits) as inspector:
            paths = [path_of(part.entry.uri, self.source_dir) for _, part in unknown]
            for (key, part), finding in zip(unknown, inspector.look_at(paths, limits=self.limits), strict=True):
                findings[key] = self._if_unmoved(part, finding)
                if not findings[key].is_transient:
                    fresh[key] = finding.to_json()
                if len(fresh) >= 200:
                    self.pins.remember_inspection(fresh)
                    fresh = {}
        if fresh:
            self.pins.remember_inspection(fresh)
        for item in ready:
            for part in self._needed(item.candidate):
                item.findings[part.entry.uri] = findings[self.limits.cache_key(item.part_digests[part.entry.uri])]

    def _if_unmoved(self, part: Part, finding: Finding) -> Finding:
        """The finding, unless the file changed between its digest and the look: then it belongs to neither."""
        for entry in (part.entry, *part.sidecars):
            try:
                found = path_of(entry.uri, self.source_dir).stat()
            except OSError:
                return Finding(kind=ErrorKind.INPUT_CHANGED, message="found that it is gone", is_transient=True)
            if (found.st_size, found.st_mtime_ns, found.st_ino) != (entry.size_bytes, entry.mtime_ns, entry.inode):
                return Finding(kind=ErrorKind.INPUT_CHANGED, message="found that it changed while it was read", is_transient=True)
        return finding

    def _judge(self, ready: _Ready) -> Scene:
        """The verdict on a scene whose needed files were looked into."""
        candidate = ready.candidate
        damage: tuple[ErrorKind, str] | None = None
        for uri, finding in sorted(ready.findings.items(), key=lambda found: (found[1].is_transient, found[0])):
            if finding.is_transient:
                reason = f"{uri!r}: {finding.message}"
                return self._scene(candidate, SceneVerdict.UNSETTLED, finding.kind, reason, digest=ready.digest)
            if finding.kind is not None and damage is None:
                damage = finding.kind, f"{uri!r}: {finding.message}"
        if damage is not None and any(finding.facts is None for finding in ready.findings.values()):
            return self._scene(candidate, SceneVerdict.REJECTED, *damage, digest=ready.digest)
        facts = {uri: finding.facts for uri, finding in ready.findings.items() if finding.facts is not None}
        source = self.config.source
        if source.acquired == "tag":
            tags = [str(found["time_tag"]) for found in facts.values() if found["time_tag"]]
            moment = moment_by_tags(tags, source.acquired_tag)
        else:
            moment = moment_before_reading(candidate, source)
        late = self._untimely(candidate, moment, digest=ready.digest)
        if late is not None:
            return late
        bands: dict[str, BandRef] = {}
        for part in self._needed(candidate):
            uri = part.entry.uri
            bands |= bands_of_part(part, facts[uri], digest=ready.part_digests[uri], names=source.bands, required=self.required)
        scene = replace(
            self._scene(candidate, SceneVerdict.ACCEPTED, None, "", digest=ready.digest, acquired=moment.acquired),
            bands={name: bands[name] for name in sorted(bands)},
            crs=next(iter(bands.values())).crs if bands else "",
            footprint=united(str(found["footprint"]) for found in facts.values()),
        )
        if damage is not None:
            return replace(scene, verdict=SceneVerdict.REJECTED, kind=damage[0], reason=damage[1])
        fault = fault_of(scene, candidate, facts=facts, required=self.required, products=self.config.products, area=self.area)
        return scene if fault is None else replace(scene, verdict=fault.verdict, kind=fault.kind, reason=fault.reason)

    # --- making scenes

    def _rejected(self, candidate: Candidate, kind: ErrorKind, reason: str) -> Scene:
        """Rejected without a digest of content: the digest is made of names and status, so that a change lifts the rejection."""
        status = sorted([entry.uri, entry.found, entry.size_bytes, entry.mtime_ns, entry.inode] for entry in candidate.entries)
        digest = digest_of({"scene": candidate.scene_id, "status": status})
        return self._scene(candidate, SceneVerdict.REJECTED, kind, reason, digest=digest)

    def _scene(
        self,
        candidate: Candidate,
        verdict: SceneVerdict,
        kind: ErrorKind | None,
        reason: str,
        *,
        digest: str = "",
        acquired: datetime | None = None,
    ) -> Scene:
        if acquired is None and self.config.source.acquired != "tag":
            acquired = moment_before_reading(candidate, self.config.source).acquired
        held = None if acquired is None or acquired > self.now else self.calendar.window_of(acquired)
        return Scene(
            scene_id=candidate.scene_id,
            verdict=verdict,
            digest=digest,
            acquired=acquired,
            window=None if held is None else held.key,
            uris=candidate.uris,
            size_bytes=sum({entry.uri: entry.size_bytes for entry in candidate.entries}.values()),
            kind=kind,
            reason=reason,
        )


def _part_digest(part: Part, sha256: Mapping[str, str]) -> str:
    """Sha256 of a file, or over it and its sidecars where it has any."""
    main = sha256[part.entry.uri]
    if not part.sidecars:
        return main
    stem = part.entry.name
    beside = sorted([_suffix(entry.name, stem), sha256[entry.uri]] for entry in part.sidecars)
    return digest_of({"file": main, "sidecars": beside})


def _suffix(name: str, main: str) -> str:
    return name[len(main) :] if name.startswith(main) else "." + name.rpartition(".")[2]
