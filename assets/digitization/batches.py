"""Batches in the source folder: which files are masters, whether a batch is whole, and which window it comes into.

A folder of the source is a batch. Half-copied batches are not taken: a batch waits for its done marker where one is configured,
else until no file of it has changed for a while, and always until every file that its manifest names is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from assets.digitization.batch_manifest import BatchManifest, is_manifest_part, read_batch_manifest
from assets.digitization.masters import MasterVerdict
from assets.sources.folder import FolderSource
from assets.sources.listing import Entry
from assets.sources.names import Stranger
from assets.sources.objects import ObjectSource
from assets.sources.source import Source
from resources.config_digitization import DigitizationConfig, SourceConfig
from resources.errors import TransientError, UnitRejected


@dataclass(slots=True)
class Batch:
    """One folder of the source: its masters, its marker, its manifest, and what is amiss with the manifest, if anything."""

    name: str
    masters: list[Entry] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)
    marker: Entry | None = None
    manifest: BatchManifest | None = None
    manifest_fault: str = ""

    def expected_sha256(self, entry: Entry) -> str | None:
        """The digest that the manifest gives for a file."""
        return None if self.manifest is None else self.manifest.sha256_of(entry.relative.partition("/")[2])


@dataclass(frozen=True, slots=True)
class BatchListing:
    """All batches by name, what lies in the source and is no master, and folders that cannot be listed now, with why."""

    batches: Mapping[str, Batch]
    strangers: tuple[Stranger, ...]
    closed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a batch may be taken now; why not; and the moment by which it finds its window."""

    verdict: MasterVerdict | None
    reason: str
    moment: datetime | None


def source_of(config: DigitizationConfig) -> Source:
    """Where masters lie, as configured."""
    return FolderSource(config.source_dir) if config.source_prefix is None else ObjectSource(config.source_prefix)


def list_batches(source: Source, config: SourceConfig) -> BatchListing:
    """All batches of a source. Raises `EnvironmentUnfit` (SOURCE_MISSING)."""
    listing = source.listing()
    strangers = list(listing.strangers)
    batches: dict[str, Batch] = {}
    for entry in listing.entries.values():
        name, slash, rest = entry.relative.partition("/")
        if not slash:
            if not _matches(entry.name, config.ignore):
                strangers.append(Stranger(entry.uri, "lies beside the batches' folders; allowed: a folder for each batch"))
            continue
        _sort_in(batches.setdefault(name, Batch(name)), entry, rest, config, strangers)
    for batch in batches.values():
        _read_manifest(batch, source)
    return BatchListing(batches, tuple(strangers), listing.closed)


def _sort_in(batch: Batch, entry: Entry, rest: str, config: SourceConfig, strangers: list[Stranger]) -> None:
    if config.done_marker is not None and rest == config.done_marker:
        batch.marker = entry
    elif any(part.startswith(".") for part in rest.split("/")):
        batch.others.append(entry)
        strangers.append(Stranger(entry.uri, "hidden (its name begins with a dot)"))
    elif is_manifest_part(rest):
        batch.others.append(entry)
    elif entry.found is not None:
        strangers.append(Stranger(entry.uri, f"found {entry.found}; allowed: a file, or a link to one"))
    elif _matches(entry.name.casefold(), [pattern.casefold() for pattern in config.patterns]):
        batch.masters.append(entry)
    elif not _matches(entry.name, config.ignore):
        strangers.append(Stranger(entry.uri, f"its name fits none of source.patterns ({', '.join(config.patterns)})"))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _read_manifest(batch: Batch, source: Source) -> None:
    files = {entry.relative.partition("/")[2]: entry for entry in (*batch.masters, *batch.others)}
    try:
        batch.manifest = read_batch_manifest(files, source)
    except UnitRejected as error:
        batch.manifest_fault = error.message
    except (OSError, TransientError) as error:
        # one batch's list, gone or locked at this moment, is not the source's fault: the others are taken
        batch.manifest_fault = f"cannot be read now ({error}); looked at again next time"


def readiness(batch: Batch, source: Source, config: SourceConfig, *, now: datetime) -> Readiness:
    """Whether a batch is whole, and its moment: of the manifest, of the done marker, or of its newest file."""
    newest = max((entry for entry in (*batch.masters, *batch.others)), key=lambda entry: entry.mtime_ns, default=None)
    shown = batch.marker or newest
    moment = None if shown is None else datetime.fromtimestamp(shown.mtime_ns / 1e9, tz=UTC)
    if batch.manifest_fault:
        return Readiness(MasterVerdict.WAITING, f"manifest of batch {batch.name!r}: {batch.manifest_fault}", moment)
    if config.manifest == "required" and batch.manifest is None:
        wanted = "manifest.csv or manifest-sha256.txt"
        return Readiness(MasterVerdict.WAITING, f"batch {batch.name!r}: manifest: found none; allowed: {wanted}", moment)
    if config.window_by == "manifest":
        moment = None if batch.manifest is None else batch.manifest.moment
        if moment is None:
            return Readiness(MasterVerdict.WAITING, f"batch {batch.name!r}: date: found none in its manifest; allowed: one", None)
    if config.done_marker is not None and batch.marker is None:
        reason = f"batch {batch.name!r}: done marker: found none; allowed: {config.done_marker!r} in its folder; waiting for it"
        return Readiness(MasterVerdict.WAITING, reason, moment)
    if config.done_marker is None and newest is not None:
        youngest = min((entry for entry in (*batch.masters, *batch.others)), key=lambda entry: _age_s(entry, now))
        age_s = _age_s(youngest, now)
        if age_s < config.settle_s:
            reason = (
                f"batch {batch.name!r}: age: found {youngest.uri!r} changed {max(age_s, 0.0):.0f} s ago; "
                f"allowed: {config.settle_s:g} s (source.settle_s); looked at again next time"
            )
            return Readiness(MasterVerdict.UNSETTLED, reason, moment)
    absent = _absent(batch, source)
    if absent:
        reason = f"batch {batch.name!r}: files: found none of {', '.join(absent[:3])} ({len(absent)} that its manifest names)"
        return Readiness(MasterVerdict.WAITING, f"{reason}; waiting for them", moment)
    return Readiness(None, "", moment)


def _age_s(entry: Entry, now: datetime) -> float:
    """Seconds since a file last changed; by ctime where mtime lies in the future, as a copied file's may."""
    age = now.timestamp() - entry.mtime_ns / 1e9
    return age if age >= 0 else now.timestamp() - entry.ctime_ns / 1e9


def _absent(batch: Batch, source: Source) -> list[str]:
    """What the manifest names and is not there. It names more than masters: a bag lists its notes and thumbnails too."""
    if batch.manifest is None:
        return []
    there = {entry.relative.partition("/")[2] for entry in (*batch.masters, *batch.others)}
    return [name for name in batch.manifest.digests if name not in there and not source.has(f"{batch.name}/{name}")]
