"""Every scene of the source with its verdict: what is there, what may be used, and why the rest may not.

Nothing that was seen is left out, one bad file stops no other, and a file is hashed and opened once for as long as it stands still.
The order of questions is the order of cost: names, then time, then settling, then digests, then a look into the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

import shapely
from shapely.geometry.base import BaseGeometry

from assets.grid import read_area
from assets.scenes.grouping import Candidate, Part, group
from assets.scenes.inspection import Finding, Inspector, Limits
from assets.scenes.listing import Entry, list_source
from assets.scenes.model import BandRef, MaskSource, Scene, SceneListing, SceneVerdict, Stranger, path_of, uri_of
from assets.scenes.naming import DoneMarker, compile_patterns, first_match
from assets.scenes.pinning import Digests, PinBook, digest_entries, is_pinned
from assets.scenes.stac_items import ITEM_BYTES_MOST, BandPlace, Item, read_item
from resources.config import Config, ProductConfig
from resources.errors import EnvironmentUnfit, ErrorKind
from resources.keys import digest_of
from resources.ledger.rows import FilePin
from resources.windows import WindowCalendar

_TIME_FORMS = ("%Y:%m:%d %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y%m%d", "%Y%m%dT%H%M%S", "%d-%b-%Y %H:%M:%S")


def find_scenes(
    config: Config,
    *,
    pins: PinBook,
    required_bands: Collection[str] = (),
    now: datetime,
    limits: Limits | None = None,
) -> SceneListing:
    """Every scene of the source, of all windows, in the order of scene ids.

    `required_bands` are the bands that all products together ask for; a scene is ready when it has them (empty: whatever it has).
    Files that `pins` knows and that stand still are neither hashed nor opened. Raises `EnvironmentUnfit` (SOURCE_MISSING: a person
    must act) and `ConfigurationError`.

    After a crash: pins and facts are written as they are found; the next look goes on from there.
    """
    look = _Look(
        config=config,
        pins=pins,
        required=frozenset(required_bands),
        now=now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC),
        limits=limits or Limits.from_config(config.source, workers=min(2, config.executor.workers)),
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
    def __init__(self, *, config: Config, pins: PinBook, required: frozenset[str], now: datetime, limits: Limits) -> None:
        self.config = config
        self.source_dir = config.source_dir
        self.pins = pins
        self.required = required
        self.now = now
        self.limits = limits
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
            is_scene_name=lambda path: first_match(self.patterns, path) is not None,
        )
        if found.is_empty and (known := len(self.pins.all_pins())):
            raise EnvironmentUnfit(
                f"source.uri: {str(self.source_dir)!r} is empty, but {known} files of it are known; is it not mounted? "
                "If it is meant to be empty, put any file into it",
                kind=ErrorKind.SOURCE_MISSING,
            )
        known_pins = self.pins.pins([entry.uri for entry in found.entries.values()])
        grouping = group(
            found,
            patterns=self.patterns,
            items=self._items(list(found.entries.values()), known_pins),
            marker=self.marker,
            required=self.required,
            source_dir=str(self.source_dir),
        )
        scenes: list[Scene] = []
        ready: list[Candidate] = []
        for candidate in grouping.candidates:
            early = self._before_reading(candidate, found.names, known_pins)
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

    @staticmethod
    def _stranger(entry: Entry) -> Stranger:
        return Stranger(entry.uri, entry.found or "matches no pattern of source.patterns, and no STAC item names it")

    def _items(self, entries: Sequence[Entry], known: Mapping[str, FilePin]) -> dict[str, Item]:
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

    def _before_reading(
        self, candidate: Candidate, names: Mapping[str, Collection[str]], known: Mapping[str, FilePin]
    ) -> Scene | None:
        """The scene, if its files need not be read to judge it."""
        odd = next((entry for entry in candidate.entries if entry.found is not None), None)
        if odd is not None:
            message = f"{odd.uri!r}: file: found {odd.found}; allowed: a file, or a link to one"
            return self._rejected(candidate, ErrorKind.UNREADABLE, message)
        if candidate.problem is not None and candidate.problem[0] is not ErrorKind.DUPLICATE_SCENE:
            return self._rejected(candidate, *candidate.problem)
        if self.config.source.acquired != "tag" and (untimely := self._untimely(candidate, *self._named_time(candidate))):
            return untimely
        return self._not_settled(candidate, names, known) or self._not_complete(candidate)

    def _named_time(self, candidate: Candidate) -> tuple[datetime | None, str]:
        """When the scene was acquired, by name or item, and what was found instead of a time."""
        if self.config.source.acquired == "item":
            if candidate.item is None:
                return None, "found no STAC item beside the scene; allowed: an item with a datetime"
            found = candidate.item.acquired
            return found, "" if found else "found no datetime in the STAC item; allowed: properties.datetime or start_datetime"
        moments = {part.acquired for part in candidate.parts if part.acquired is not None}
        texts = sorted({part.date_text for part in candidate.parts if part.date_text is not None})
        if len(moments) == 1:
            return moments.pop(), ""
        if moments:
            return None, f"found more than one date in the names of its files ({', '.join(texts)}); allowed: one"
        if texts:
            return None, f"found {texts[0]!r}, which is no date; allowed: a date of the calendar"
        return (
            None,
            "found no {date:...} in the pattern that matches its name; allowed: a pattern with a date, or source.acquired",
        )

    def _untimely(self, candidate: Candidate, acquired: datetime | None, found: str) -> Scene | None:
        """The scene, if no window may hold it: undated, in the future, before the first or after the last window."""
        scene_id, field_name = candidate.scene_id, f"acquisition time ({self.config.source.acquired})"
        if acquired is None:
            reason = f"scene {scene_id!r}: {field_name}: {found}"
            return self._scene(candidate, SceneVerdict.UNDATED, ErrorKind.NO_ACQUISITION_TIME, reason)
        shown = acquired.isoformat()
        if acquired > self.now:
            reason = (
                f"scene {scene_id!r}: {field_name}: found {shown}, in the future; allowed: up to now ({self.now.isoformat()})"
            )
            return self._scene(candidate, SceneVerdict.IN_FUTURE, None, reason, acquired=acquired)
        if self.calendar.window_of(acquired) is not None:
            return None
        if acquired < self.calendar.start:
            allowed = f"from {self.calendar.start.isoformat()} (window.start)"
            verdict = SceneVerdict.BEFORE_FIRST_WINDOW
        else:
            allowed = f"before {self.calendar.end.isoformat() if self.calendar.end else 'now'} (window.end)"
            verdict = SceneVerdict.AFTER_LAST_WINDOW
        reason = f"scene {scene_id!r}: {field_name}: found {shown}; allowed: {allowed}"
        return self._scene(candidate, verdict, None, reason, acquired=acquired)

    def _not_settled(
        self, candidate: Candidate, names: Mapping[str, Collection[str]], known: Mapping[str, FilePin]
    ) -> Scene | None:
        moving = [entry for entry in candidate.entries if not is_pinned(entry, known.get(entry.uri))]
        if self.marker is not None:
            wanted = self.marker.name_for(candidate.scene_id)
            folders = {entry.folder for entry in candidate.entries}
            if not any(wanted in names.get(folder, ()) for folder in folders):
                reason = (
                    f"scene {candidate.scene_id!r}: done marker: found none; allowed: {wanted!r} beside its files; waiting for it"
                )
                return self._scene(candidate, SceneVerdict.WAITING, None, reason)
            return None
        for entry in moving:
            age_s = self._age_s(entry)
            if age_s < self.config.source.settle_s:
                reason = (
                    f"{entry.uri!r}: age: found {max(age_s, 0.0):.1f} s since it was last written; "
                    f"allowed: {self.config.source.settle_s:g} s (source.settle_s); looked at again next time"
                )
                return self._scene(candidate, SceneVerdict.UNSETTLED, None, reason)
        return None

    def _age_s(self, entry: Entry) -> float:
        """Seconds since a file was last written; by ctime where mtime lies in the future, as a copied file's may."""
        if self.config.source.settle_s == 0:
            return 0.0
        age = self.now.timestamp() - entry.mtime_ns / 1e9
        return age if age >= 0 else self.now.timestamp() - entry.ctime_ns / 1e9

    def _not_complete(self, candidate: Candidate) -> Scene | None:
        """WAITING for bands in files of their own that are not there yet. A whole file is judged when it is open."""
        if candidate.problem is not None or any(part.is_whole for part in candidate.parts):
            return None
        have = {band.name for part in candidate.parts for band in part.bands}
        missing = sorted((self.required - have) | set(candidate.absent))
        if not missing:
            return None
        reason = f"scene {candidate.scene_id!r}: bands: found {_names(have)}; allowed: also {_names(missing)}"
        described = candidate.item is not None and not candidate.absent
        if described:
            return self._rejected(candidate, ErrorKind.MISSING_BAND, f"{reason}, which its STAC item does not name")
        return self._scene(candidate, SceneVerdict.WAITING, ErrorKind.MISSING_BAND, f"{reason}; waiting for them")

    # --- what needs reading

    def _read(self, candidates: Sequence[Candidate], known: Mapping[str, FilePin]) -> list[Scene]:
        entries = {entry.uri: entry for candidate in candidates for entry in candidate.entries}
        digests = digest_entries(
            [entries[uri] for uri in sorted(entries)], source_dir=self.source_dir, book=self.pins, known=known, now=self.now
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
        unpinned = [(entry, digests.unpinned[entry.uri]) for entry in candidate.entries if entry.uri in digests.unpinned]
        for entry, why in sorted(unpinned, key=lambda found: found[1].is_transient):
            reason = f"{entry.uri!r}: {why.message}"
            if why.is_transient:
                return self._scene(candidate, SceneVerdict.UNSETTLED, why.kind, f"{reason}; looked at again next time")
            return self._rejected(candidate, why.kind, reason)
        parts = {part.entry.uri: _part_digest(part, digests.sha256) for part in candidate.parts}
        item = None if candidate.item_entry is None else digests.sha256[candidate.item_entry.uri]
        bands = sorted([band.name, band.index, parts[part.entry.uri]] for part in candidate.parts for band in part.bands)
        whole = sorted(parts[part.entry.uri] for part in candidate.parts if part.is_whole)
        digest = digest_of({"scene": candidate.scene_id, "bands": bands, "whole": whole, "item": item})
        if candidate.problem is not None:
            kind, message = candidate.problem
            return self._scene(candidate, SceneVerdict.REJECTED, kind, message, digest=digest)
        return _Ready(candidate, digest, parts)

    def _needed(self, candidate: Candidate) -> list[Part]:
        """The parts that are opened: files of bands that nobody asks for are hashed, and left shut."""
        return [
            part
            for part in candidate.parts
            if part.is_whole or not self.required or any(band.name in self.required for band in part.bands)
        ]

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
        with Inspector(self.limits) as inspector:
            paths = [path_of(part.entry.uri, self.source_dir) for _, part in unknown]
            for (key, part), finding in zip(unknown, inspector.look_at(paths), strict=True):
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
        for uri, finding in sorted(ready.findings.items(), key=lambda found: (found[1].is_transient, found[0])):
            if finding.is_transient:
                reason = f"{uri!r}: {finding.message}"
                return self._scene(candidate, SceneVerdict.UNSETTLED, finding.kind, reason, digest=ready.digest)
            if finding.kind is not None:
                return self._scene(
                    candidate, SceneVerdict.REJECTED, finding.kind, f"{uri!r}: {finding.message}", digest=ready.digest
                )
        acquired, found = self._tagged_time(ready) if self.config.source.acquired == "tag" else self._named_time(candidate)
        untimely = self._untimely(candidate, acquired, found)
        if untimely is not None:
            return replace(untimely, digest=ready.digest)
        assert acquired is not None
        bands: dict[str, BandRef] = {}
        for part in self._needed(candidate):
            bands |= self._bands(part, ready)
        window = self.calendar.window_of(acquired)
        scene = self._scene(
            candidate,
            SceneVerdict.ACCEPTED,
            None,
            "",
            digest=ready.digest,
            acquired=acquired,
            window=window.key if window else None,
        )
        scene = replace(
            scene,
            bands={name: bands[name] for name in sorted(bands)},
            crs=next(iter(bands.values())).crs if bands else "",
            footprint=_united(ready.findings.values()),
        )
        return self._with_fault(scene, candidate, ready)

    def _with_fault(self, scene: Scene, candidate: Candidate, ready: _Ready) -> Scene:
        """The scene, rejected if its bands do not fit together or do not serve the products, or set aside if outside the area."""
        kind, reason = None, ""
        missing = sorted(self.required - set(scene.bands))
        crowded = next((part for part in self._needed(candidate) if len(part.bands) == 1 and self._is_crowded(part, ready)), None)
        systems = {band.crs: band for band in scene.bands.values()}
        averaged = _averaged_palette(scene, self.config.products)
        if missing:
            where = f"{candidate.parts[0].entry.uri!r}" if candidate.parts else f"scene {scene.scene_id!r}"
            kind, reason = (
                ErrorKind.MISSING_BAND,
                f"{where}: bands: found {_names(scene.bands)}; allowed: also {_names(missing)}, which products ask for",
            )
        elif crowded is not None:
            count = len((ready.findings[crowded.entry.uri].facts or {})["bands"])
            kind, reason = (
                ErrorKind.CONTRACT_VIOLATED,
                f"{crowded.entry.uri!r}: bands: found {count} in a file whose name stands for one band; allowed: 1, and an alpha band",
            )
        elif len(systems) > 1:
            first, second = (systems[crs] for crs in sorted(systems)[:2])
            kind, reason = (
                ErrorKind.MIXED_CRS,
                f"scene {scene.scene_id!r}: CRS: found {_short(first.crs)} in {first.uri!r} and {_short(second.crs)} in "
                f"{second.uri!r}; allowed: one CRS for all bands of a scene",
            )
        elif averaged is not None:
            band, product = averaged
            kind, reason = (
                ErrorKind.UNSUPPORTED_DTYPE,
                f"{band.uri!r}: colour table: found palette indices in band {band.name}, which product {product.name!r} would average "
                f"(resampling {product.resampling}, compositing {product.compositing}); allowed: resampling nearest or mode and "
                "compositing first, last, min or max, or a file expanded to colours (gdal_translate -expand rgb)",
            )
        if kind is not None:
            return replace(scene, verdict=SceneVerdict.REJECTED, kind=kind, reason=reason)
        if scene.footprint is None or not shapely.relate_pattern(self.area, scene.footprint, "T********"):
            return replace(
                scene,
                verdict=SceneVerdict.OUTSIDE_AREA,
                kind=ErrorKind.OUTSIDE_AREA,
                reason=f"scene {scene.scene_id!r}: footprint: found {_box(scene.footprint)}; allowed: one that meets the area "
                f"{_box(self.area)} (grid.area; left, bottom, right, top in degrees)",
            )
        return scene

    def _is_crowded(self, part: Part, ready: _Ready) -> bool:
        if part.bands[0].index != 1 or ready.candidate.item is not None:
            return False
        bands = (ready.findings[part.entry.uri].facts or {})["bands"]
        return sum(not band["is_alpha"] for band in bands) > 1

    def _tagged_time(self, ready: _Ready) -> tuple[datetime | None, str]:
        tag = self.config.source.acquired_tag
        texts = sorted({str(text) for item in ready.findings.values() if (text := (item.facts or {}).get("time_tag"))})
        if not texts:
            return None, f"found no tag {tag}; allowed: a time like 2020:01:31 10:20:30 in it"
        moments = {_parse_time(text) for text in texts}
        if len(moments) > 1:
            return None, f"found more than one time in tag {tag} of its files ({', '.join(texts)}); allowed: one"
        moment = moments.pop()
        return moment, "" if moment else f"found {texts[0]!r} in tag {tag}; allowed: a time like 2020:01:31 10:20:30"

    def _bands(self, part: Part, ready: _Ready) -> dict[str, BandRef]:
        facts = ready.findings[part.entry.uri].facts or {}
        described = facts["bands"]
        names = self.config.source.bands
        places = part.bands or tuple(
            BandPlace(names[i] if i < len(names) else f"b{i + 1}", "", i + 1) for i in range(len(described))
        )
        alpha = next((i + 1 for i, band in enumerate(described) if band["is_alpha"]), None)
        a, b, c, d, e, f = facts["transform"]
        return {
            place.name: BandRef(
                name=place.name,
                uri=part.entry.uri,
                index=place.index,
                digest=ready.part_digests[part.entry.uri],
                size_bytes=part.entry.size_bytes,
                mtime_ns=part.entry.mtime_ns,
                inode=part.entry.inode,
                dtype=band["dtype"],
                nodata=None if band["nodata"] is None else float(band["nodata"]),
                width=facts["width"],
                height=facts["height"],
                transform=(a, b, c, d, e, f),
                crs=facts["crs"],
                scale=band["scale"] if place.scale is None else place.scale,
                offset=band["offset"] if place.offset is None else place.offset,
                mask=MaskSource(band["mask"]),
                alpha_index=alpha,
                is_palette=band["is_palette"],
            )
            for place in places
            if place.index <= len(described) and (not self.required or place.name in self.required)
            for band in (described[place.index - 1],)
        }

    # --- making scenes

    def _rejected(self, candidate: Candidate, kind: ErrorKind, reason: str) -> Scene:
        """A scene rejected without a digest of its content: one made of names and status, so that a change lifts the rejection."""
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
        window: str | None = None,
    ) -> Scene:
        if acquired is None and self.config.source.acquired != "tag":
            acquired = self._named_time(candidate)[0]
        if window is None and acquired is not None and verdict in _HELD_BY_WINDOW:
            found = self.calendar.window_of(acquired)
            window = found.key if found is not None else None
        return Scene(
            scene_id=candidate.scene_id,
            verdict=verdict,
            digest=digest,
            acquired=acquired,
            window=window,
            uris=candidate.uris,
            size_bytes=sum({entry.uri: entry.size_bytes for entry in candidate.entries}.values()),
            kind=kind,
            reason=reason,
        )


_HELD_BY_WINDOW = frozenset(
    {SceneVerdict.ACCEPTED, SceneVerdict.REJECTED, SceneVerdict.WAITING, SceneVerdict.UNSETTLED, SceneVerdict.OUTSIDE_AREA}
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


def _parse_time(text: str) -> datetime | None:
    moment = None
    stripped = text.strip()
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        for form in _TIME_FORMS:
            try:
                moment = datetime.strptime(stripped, form)
                break
            except ValueError:
                continue
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _united(findings: Iterable[Finding]) -> BaseGeometry | None:
    hexes = sorted({finding.facts["footprint"] for finding in findings if finding.facts})
    shapes = [shapely.from_wkb(text) for text in hexes]
    if not shapes:
        return None
    return shapes[0] if len(shapes) == 1 else shapely.union_all(shapes)


def _averaged_palette(scene: Scene, products: Sequence[ProductConfig]) -> tuple[BandRef, ProductConfig] | None:
    """A band of palette indices and a product that would average them, which gives indices that mean something else."""
    for band in scene.bands.values():
        for product in products if band.is_palette else ():
            asked = band.name in product.bands or re.search(rf"\b{re.escape(band.name)}\b", product.expression or "") is not None
            averages = product.resampling not in ("nearest", "mode") or product.compositing in ("mean", "median")
            if asked and averages:
                return band, product
    return None


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    shown = ", ".join(ordered[:20])
    return (shown + f" and {len(ordered) - 20} more" if len(ordered) > 20 else shown) or "none"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _box(shape: BaseGeometry | None) -> str:
    return "none" if shape is None or shape.is_empty else "(" + ", ".join(f"{value:.6g}" for value in shape.bounds) + ")"
