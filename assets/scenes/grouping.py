"""From files to candidates: which files make one scene, by their names or by a STAC item.

A file that an item names belongs to that item alone. Two files that claim one band of one scene make it a duplicate: neither is
used until a person renames or removes one, because a choice would depend on the order in which files are listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from assets.scenes.naming import DoneMarker, NamePattern, first_match
from assets.scenes.sidecars import sidecar_names
from assets.scenes.stac_items import BandPlace, Item, bands_of, local_path
from assets.sources.listing import Entry, Listing
from assets.sources.names import uri_of
from resources.errors import ErrorKind


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a candidate: its bands by name (none: all it has, by position), its sidecars, what its name says of time."""

    entry: Entry
    bands: tuple[BandPlace, ...] = ()
    sidecars: tuple[Entry, ...] = ()
    acquired: datetime | None = None
    date_text: str | None = None

    @property
    def is_whole(self) -> bool:
        """The file holds all bands of its scene."""
        return not self.bands


@dataclass(frozen=True, slots=True)
class Candidate:
    """Files that say they are one scene. `problem`: why they cannot be. `absent`: bands that an item names without a file."""

    scene_id: str
    parts: tuple[Part, ...] = ()
    item: Item | None = None
    item_entry: Entry | None = None
    problem: tuple[ErrorKind, str] | None = None
    absent: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every file that decides the scene: parts, their sidecars, the item."""
        files = [file for part in self.parts for file in (part.entry, *part.sidecars)]
        return (*files, self.item_entry) if self.item_entry is not None else tuple(files)

    @property
    def uris(self) -> tuple[str, ...]:
        """Uris of its files, sorted."""
        return tuple(sorted({entry.uri for entry in self.entries}))


@dataclass(frozen=True, slots=True)
class Grouping:
    """All candidates by scene id, and the paths that belong to none."""

    candidates: tuple[Candidate, ...]
    strangers: tuple[str, ...]


def group(
    listing: Listing,
    *,
    patterns: Sequence[NamePattern],
    items: Mapping[str, Item],
    marker: DoneMarker | None,
    required: Collection[str],
    source_dir: str,
) -> Grouping:
    """Candidates of a listing. `items` are the STAC items by the relative path of their file."""
    sidecars, owned = _sidecars(listing, patterns)
    found: dict[str, list[Candidate]] = {}
    taken: set[str] = set(owned)
    for path, item in sorted(items.items()):
        candidate = _from_item(item, listing, path, required, sidecars, source_dir)
        found.setdefault(candidate.scene_id, []).append(candidate)
        taken |= {path, *(part.entry.relative for part in candidate.parts)}
        taken |= {other for asset in item.assets for other in local_path(asset.href, folder=_folder(path), source_dir=source_dir)}
    strangers = []
    for path in sorted(listing.entries):
        entry = listing.entries[path]
        if path in taken or (marker is not None and marker.is_marker(entry.name)):
            continue
        match = first_match(patterns, path)
        if match is None:
            strangers.append(path)
            continue
        band = () if match.band is None else (BandPlace(match.band, entry.name, 1),)
        part = Part(entry, band, sidecars.get(path, ()), match.acquired, match.date_text)
        found.setdefault(uri_of(match.scene_id), []).append(Candidate(uri_of(match.scene_id), (part,)))
    merged = tuple(_merge(scene_id, found[scene_id]) for scene_id in sorted(found))
    return Grouping(merged, tuple(strangers))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _sidecars(listing: Listing, patterns: Sequence[NamePattern]) -> tuple[dict[str, tuple[Entry, ...]], set[str]]:
    """Sidecars of each file, and the paths that are some file's sidecars and so no scenes of their own."""
    by_file: dict[str, tuple[Entry, ...]] = {}
    owned: set[str] = set()
    for path, entry in listing.entries.items():
        if entry.found is not None:
            continue
        names = sidecar_names(entry.name, among=listing.names[entry.folder])
        if names:
            prefix = f"{entry.folder}/" if entry.folder else ""
            by_file[path] = tuple(listing.entries[prefix + name] for name in names)
    for path, beside in by_file.items():
        if first_match(patterns, path) is not None:
            owned |= {entry.relative for entry in beside}
    return {path: beside for path, beside in by_file.items() if path not in owned}, owned


def _from_item(
    item: Item,
    listing: Listing,
    path: str,
    required: Collection[str],
    sidecars: Mapping[str, tuple[Entry, ...]],
    source_dir: str,
) -> Candidate:
    base = Candidate(item.item_id, item=item, item_entry=listing.entries[path])
    if item.problem:
        return replace(base, problem=(ErrorKind.CONTRACT_VIOLATED, f"{base.uris[0]!r}: {item.problem}"))
    by_file: dict[str, list[BandPlace]] = {}
    absent = []
    for place in bands_of(item, required):
        forms = local_path(place.href, folder=_folder(path), source_dir=source_dir)
        if not forms:
            message = (
                f"{base.uris[0]!r}: href of {place.name}: found {place.href[:120]!r}; allowed: a path inside the source folder"
            )
            return replace(base, problem=(ErrorKind.CONTRACT_VIOLATED, message))
        there = next((form for form in forms if form in listing.entries), None)
        if there is None:
            absent.append(place.name)
        else:
            by_file.setdefault(there, []).append(place)
    parts = tuple(Part(listing.entries[there], tuple(by_file[there]), sidecars.get(there, ())) for there in sorted(by_file))
    return replace(base, parts=parts, absent=tuple(absent))


def _merge(scene_id: str, candidates: Sequence[Candidate]) -> Candidate:
    """One candidate of all that have the name; a duplicate when they cannot be one scene."""
    if len(candidates) == 1:
        return candidates[0]
    parts = tuple(part for candidate in candidates for part in candidate.parts)
    merged = Candidate(
        scene_id,
        parts,
        item=candidates[0].item,
        item_entry=next((c.item_entry for c in candidates if c.item_entry is not None), None),
    )
    claims: dict[str, str] = {}
    clash: tuple[str, str] | None = None
    if any(candidate.item is not None for candidate in candidates) or (
        any(part.is_whole for part in parts) and not all(part.is_whole for part in parts)
    ):
        first, second = (candidate.item_entry or candidate.parts[0].entry for candidate in candidates[:2])
        clash = first.uri, second.uri
    for part in parts:
        for name in [band.name for band in part.bands] or [""]:
            if name in claims and clash is None:
                clash = claims[name], part.entry.uri
            claims.setdefault(name, part.entry.uri)
    if clash is None:
        return merged
    message = (
        f"scene {scene_id!r}: name: found two scenes of this name, {clash[0]!r} and {clash[1]!r}; "
        "allowed: one. Neither is used until one of them is renamed or removed"
    )
    return replace(merged, problem=(ErrorKind.DUPLICATE_SCENE, message))
