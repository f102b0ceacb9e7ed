"""The list that comes with a batch: BagIt's `manifest-sha256.txt`, or a `manifest.csv`. What should be there, with which digest.

BagIt by RFC 8493: lines of a digest and a path, with line breaks and percent signs in paths written as escapes; its date is the
`Bagging-Date` of `bag-info.txt`. CSV: a header with `path` (or file, filename), optionally `sha256` and `date`; split by comma or
semicolon. A list that cannot be understood keeps its batch waiting: half a list would let half a batch pass. So does one that
is there and cannot be used (a link to nothing, two that differ in letter case, other digests alone): passed over, it would let
damage in; and a table with digests in a column that is not known.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from assets.sources.listing import Entry
from assets.sources.source import Source
from resources.errors import ErrorKind, UnitRejected

BAGIT = "manifest-sha256.txt"
CSV = "manifest.csv"
_BAG_INFO = "bag-info.txt"
_PARTS = re.compile(r"bagit\.txt|bag-info\.txt|fetch\.txt|(tag)?manifest-[a-z0-9]+\.txt|manifest\.csv", re.IGNORECASE)
_OTHER_DIGESTS = re.compile(r"manifest-(?!sha256\.)[a-z0-9]+\.txt", re.IGNORECASE)
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_BAGIT_LINE = re.compile(r"([^ \t]*)(?:[ \t]+\*?(.*))?", re.DOTALL)
_BYTES_MOST = 256 << 20
_SHOWN_MOST = 200
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ANY_DIGEST = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128}")
"""MD5, SHA-1, and SHA-2 from 256 to 512 bits, in hexadecimal digits."""
_COLUMNS = {
    "path": ("path", "file", "filename", "file_name", "name"),
    "sha256": ("sha256", "sha-256", "sha_256", "sha256sum", "checksum_sha256", "checksum", "digest", "hash"),
    "date": ("date", "batch_date"),
}


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """What a batch should hold: paths below its folder, with their digests where the list gives them; and the batch's date."""

    digests: Mapping[str, str | None] = field(default_factory=dict)
    moment: datetime | None = None

    def sha256_of(self, path: str) -> str | None:
        """The digest that the list gives for a path below the batch's folder."""
        return self.digests.get(path)


def is_manifest_part(path: str) -> bool:
    """Whether a path below a batch's folder is a list of files or part of a bag's bookkeeping, and so no master."""
    return _PARTS.fullmatch(path) is not None


def read_batch_manifest(files: Mapping[str, Entry], source: Source) -> BatchManifest | None:
    """The list among the `files` of a batch, by path below it; None when it came without one. BagIt's is taken where both are.

    Raises `UnitRejected` (CORRUPT_INPUT, no retry) when it cannot be understood, and what reading from `source` raises.
    """
    names = sorted({path.partition("/")[0] for path in files})
    bagit, info, table = (_only(names, wanted) for wanted in (BAGIT, _BAG_INFO, CSV))
    if bagit is not None:
        return _bagit(_text(files, bagit, source), "" if info is None else _text(files, info, source))
    if table is not None:
        return _csv(_text(files, table, source))
    other = next((name for name in names if _OTHER_DIGESTS.fullmatch(name)), None)
    if other is not None:
        raise _refused(f"{other}: digests: found a list of another kind alone; allowed: {BAGIT} beside it, or {CSV}")
    return None


def _only(names: list[str], wanted: str) -> str | None:
    """The one of `names` that is `wanted` in any letter case, since it would be passed over as bookkeeping in any."""
    found = [name for name in names if name.casefold() == wanted]
    if len(found) > 1:
        raise _refused(f"{wanted}: found {', '.join(found)}; allowed: one")
    return found[0] if found else None


def _text(files: Mapping[str, Entry], name: str, source: Source) -> str:
    entry = files.get(name)
    if entry is None or entry.found is not None:
        raise _refused(f"{name}: found no file under that name; allowed: a file, or a link to one")
    if entry.size_bytes > _BYTES_MOST:
        raise _refused(f"{name}: found {entry.size_bytes} bytes; allowed: {_BYTES_MOST}")
    with source.open(entry.uri) as stream:
        content = stream.read(_BYTES_MOST)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(f"{name}: found bytes that are not UTF-8 at {error.start}; allowed: UTF-8") from error


def _bagit(text: str, info: str) -> BatchManifest:
    digests: dict[str, str | None] = {}
    # only at LF, CR, CRLF: names may hold what Python takes for the end of a line as well (U+0085, U+2028)
    for number, line in enumerate(_LINE_ENDS.split(text), start=1):
        if not line.strip(" \t"):
            continue
        parts = _BAGIT_LINE.fullmatch(line.strip(" \t"))
        assert parts is not None
        digest, path = parts[1], parts[2] or ""
        for escaped, plain in (("%0A", "\n"), ("%0a", "\n"), ("%0D", "\r"), ("%0d", "\r"), ("%25", "%")):
            path = path.replace(escaped, plain)
        _add(digests, f"{BAGIT} line {number}", path, digest)
    moment = re.search(r"^Bagging-Date:\s*(\S+)", info, re.MULTILINE | re.IGNORECASE)
    return BatchManifest(digests, None if moment is None else _moment(moment[1], _BAG_INFO))


def _csv(text: str) -> BatchManifest:
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    names = {(name or "").strip().casefold(): name for name in reader.fieldnames or ()}
    columns = {wanted: next((names[name] for name in known if name in names), None) for wanted, known in _COLUMNS.items()}
    if columns["path"] is None:
        raise _refused(f"{CSV}: columns: found {sorted(names)}; allowed: one of {', '.join(_COLUMNS['path'])}")
    digests: dict[str, str | None] = {}
    moments: set[datetime] = set()
    try:
        for number, row in enumerate(reader, start=2):
            path = (row[columns["path"]] or "").strip().replace("\\", "/")
            if not path and not any((value or "") for value in row.values()):
                continue
            digest = (row[columns["sha256"]] or "").strip() if columns["sha256"] else ""
            _refuse_unknown_digest(row, columns, number)
            _add(digests, f"{CSV} line {number}", path, digest or None)
            if columns["date"] and (row[columns["date"]] or "").strip():
                moments.add(_moment(row[columns["date"]].strip(), f"{CSV} line {number}"))
    except csv.Error as error:
        raise _refused(f"{CSV}: cannot be read as CSV: {error}") from error
    return BatchManifest(digests, min(moments, default=None))


def _refuse_unknown_digest(row: Mapping[str, Any], columns: Mapping[str, str | None], number: int) -> None:
    """Whoever gives digests believes that they are checked: one in a column that is not known must not be passed over."""
    if columns["sha256"] is not None:
        return
    for name, value in row.items():
        if name not in columns.values() and isinstance(value, str) and _ANY_DIGEST.fullmatch(value.strip()):
            known = ", ".join(_COLUMNS["sha256"])
            raise _refused(f"{CSV} line {number}: column {name!r}: found a digest; allowed: SHA-256, in a column {known}")


def _add(digests: dict[str, str | None], where: str, path: str, digest: str | None) -> None:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    digest = None if digest is None else digest.lower()
    if not parts or path.startswith("/") or ".." in parts:
        raise _refused(f"{where}: path: found {path[:_SHOWN_MOST]!r}; allowed: one below the batch's folder")
    path = "/".join(parts)
    if digest is not None and not _SHA256.fullmatch(digest):
        raise _refused(f"{where}: sha256: found {digest[:_SHOWN_MOST]!r}; allowed: 64 hexadecimal digits")
    if digests.get(path, digest) != digest:
        raise _refused(f"{where}: {path[:_SHOWN_MOST]!r}: found two digests for one path; allowed: one")
    digests[path] = digest


def _moment(text: str, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _refused(f"{where}: date: found {text[:_SHOWN_MOST]!r}; allowed: ISO 8601, e.g. 2024-06-01") from None


def _refused(message: str) -> UnitRejected:
    return UnitRejected(message, kind=ErrorKind.CORRUPT_INPUT)
