"""The preservation export of a window: one PREMIS document for each object captured in it, and a table of all their events.

An object is a name under which a content was captured. Its document tells the content's events and copies, also where another
window derived them because the content was captured there first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.digitization.copies import copy_unit
from assets.digitization.events import AGENT, EventType
from assets.digitization.masters import first_of_each
from assets.digitization.model import MasterFacts
from assets.digitization.premis import PremisAgent, PremisEvent, PremisObject, RightsStatement, premis_document, read_document
from assets.digitization.shape import COPIES, PREMIS
from assets.keyed_table import check_keyed_table, write_keyed_table
from assets.window_batch import WindowBatch, window_unit
from resources.errors import ErrorKind, UnitRejected
from resources.keys import digest_of, unit_key
from resources.ledger import UnitRow
from resources.ledger.facts import Capture, EventRow
from resources.trees import is_directory_name
from resources.units import Metrics, UnitOfWork, UnitState

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject

EXPORT_VERSION = "2"
"""Raise it when the bytes of an export of equal objects and events change."""

TABLE_NAME = "events.parquet"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_SCHEMA = pa.schema(
    [
        (name, pa.string())
        for name in ("event_id", "event_type", "content_digest", "period", "operation", "outcome", "detail", "linked", "agent")
    ]
    + [("at", pa.timestamp("us", tz="UTC")), ("unit_key", pa.string()), ("window", pa.string())]
)


@dataclass(frozen=True, slots=True)
class ObjectExport:
    """What one document says."""

    objects: tuple[PremisObject, ...]
    events: tuple[PremisEvent, ...]
    agents: tuple[PremisAgent, ...]
    rights: RightsStatement | None

    def fingerprint(self) -> str:
        """Tells one document from another."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return digest_of(plain)


def export_batch(project: DigitizationProject, windows: Sequence[str]) -> WindowBatch:
    """The documents and the table of some windows."""
    return WindowBatch(PREMIS, {window: list(_works(project, window)) for window in windows}, ledger=project.ledger)


def document_uri(window: str, uri: str) -> str:
    """Where the document of an object lies: by its name, and by a digest of it, since names may hold anything."""
    readable = _UNSAFE.sub("_", uri).strip("_")[-60:].strip("_-") or "object"
    return f"{PREMIS}/{window}/{readable}.{hashlib.sha256(uri.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.xml"


def events_uri(window: str) -> str:
    """Where the table of a window's events lies."""
    return f"{PREMIS}/{window}/{TABLE_NAME}"


def _works(project: DigitizationProject, window: str) -> Iterator[UnitOfWork]:
    ledger = project.ledger
    captures = list(ledger.captures(window=window))
    contents = list(dict.fromkeys(capture.sha256 for capture in captures))
    first = first_of_each(ledger.captures(sha256s=contents))
    copies = _copies(project, first)
    events: dict[str, list[EventRow]] = {}
    digests = [*contents, *(copy.output_digest for copy in copies.values() if copy.output_digest)]
    for row in ledger.events(content_digests=digests):
        events.setdefault(row.content_digest, []).append(row)
    rights = _rights(project)
    for capture in captures:
        copy = copies.get(capture.sha256)
        told = [*events.get(capture.sha256, ()), *(events.get(copy.output_digest or "", ()) if copy is not None else ())]
        yield _document(window, object_export(capture, copy, told, rights))
    rows = sorted((row for some in events.values() for row in some), key=lambda row: row.event_id)
    yield _table(window, rows)


def _copies(project: DigitizationProject, first: Mapping[str, Capture]) -> dict[str, UnitRow]:
    """The copy of each content that has one under the settings of now."""
    keys = {copy_unit(capture, project.copy_settings).key: sha256 for sha256, capture in first.items()}
    found: dict[str, UnitRow] = {}
    for row in project.ledger.planned(COPIES, dict.fromkeys(capture.window for capture in first.values())):
        if row.key in keys and row.state is UnitState.COMPLETE:
            found[keys[row.key]] = row
    return found


def object_export(
    capture: Capture, copy: UnitRow | None, rows: Iterable[EventRow], rights: RightsStatement | None
) -> ObjectExport:
    """The document of one object, with its copy where there is one."""
    events = tuple(_event(row, capture, copy) for row in sorted(rows, key=lambda row: (row.at, row.event_id)))
    facts = MasterFacts.from_json(capture.facts)
    migration = next((row.event_id for row in rows if copy is not None and copy.key in row.operation), None)
    master = PremisObject(
        identifier=capture.uri,
        sha256=capture.sha256,
        size_bytes=capture.size_bytes,
        format_name=facts.format,
        original_name=capture.uri.rpartition("/")[2],
        location=capture.uri,
        properties=_properties(facts),
        software=facts.capture.get("software"),
        has_copies=() if copy is None else ((copy.output_uri, migration or ""),),
    )
    objects = (master,) if copy is None else (master, _copy_object(capture, copy, migration))
    agents = (PremisAgent(AGENT, AGENT, version=version("tilewright")),)
    return ObjectExport(objects, events, agents, rights)


def _copy_object(capture: Capture, copy: UnitRow, migration: str | None) -> PremisObject:
    pages = copy.metrics.get("pages", [])
    is_folder = is_directory_name(copy.output_uri)
    return PremisObject(
        identifier=copy.output_uri,
        sha256=copy.output_digest or "",
        size_bytes=copy.output_size or 0,
        format_name="JPEG 2000 (JP2), one file for each page" if is_folder else "JPEG 2000 (JP2)",
        location=copy.output_uri,
        properties={
            "lossless": str(bool(copy.metrics.get("lossless"))).lower(),
            "pages": str(len(pages)),
            **({"sha256 of decoded pixels": pages[0]["pixels_sha256"]} if len(pages) == 1 else {}),
        },
        derived_from=capture.uri,
        derived_by=migration,
        digest_algorithm="SHA-256 of names, digests and sizes" if is_folder else "SHA-256",
    )


def _properties(facts: MasterFacts) -> dict[str, str]:
    if not facts.pages:
        return {}
    page = facts.pages[0]
    return {
        "width": str(page.width),
        "height": str(page.height),
        "pages": str(len(facts.pages)),
        "bits per sample": str(page.bits),
        "samples per pixel": str(page.samples),
        "photometric interpretation": page.photometric.value,
        "compression": page.compression,
        **({} if page.icc_sha256 is None else {"sha256 of ICC profile": page.icc_sha256}),
        **{f"capture: {name}": text for name, text in facts.capture.items()},
    }


def _event(row: EventRow, capture: Capture, copy: UnitRow | None) -> PremisEvent:
    kind = EventType(row.event_type)
    linked: list[tuple[str, str]] = []
    if row.content_digest == capture.sha256:
        linked.append((capture.uri, "source"))
    if copy is not None and (copy.key in row.operation or row.content_digest == copy.output_digest):
        linked.append((copy.output_uri, "outcome" if kind is EventType.MIGRATION else "source"))
    notes = tuple(str(text) for text in row.detail.get("statements", ())) if isinstance(row.detail, dict) else ()
    detail = json.dumps(row.detail, sort_keys=True, ensure_ascii=False)
    return PremisEvent(row.event_id, kind.label, row.at, row.outcome, detail, notes, row.agent, tuple(linked))


def _rights(project: DigitizationProject) -> RightsStatement | None:
    found = project.config.rights
    if found is None:
        return None
    plain = found.model_dump(mode="json")
    return RightsStatement(
        f"rights-{digest_of(plain)[:16]}", found.basis, found.status, found.jurisdiction, found.terms, found.note, found.acts
    )


def _document(window: str, export: ObjectExport) -> UnitOfWork:
    uri = document_uri(window, export.objects[0].identifier)
    ingredients = _ingredients(f"{PREMIS}.xml", window, uri, export.fingerprint())
    key = unit_key(**ingredients)
    work, validate = partial(write_document, export, key), partial(validate_document, key)
    return window_unit(PREMIS, uri, ingredients, work=work, validate=validate)


def _table(window: str, rows: Sequence[EventRow]) -> UnitOfWork:
    uri = events_uri(window)
    said = hashlib.sha256("".join(f"{row.event_id}{row.outcome}{row.at}\n" for row in rows).encode()).hexdigest()
    ingredients = _ingredients(f"{PREMIS}.parquet", window, uri, said)
    key = unit_key(**ingredients)
    work, validate = partial(write_events, tuple(rows), key), partial(check_keyed_table, key)
    return window_unit(PREMIS, uri, ingredients, work=work, validate=validate)


def _ingredients(operation: str, window: str, uri: str, inputs: str) -> dict[str, Any]:
    destination = {"window": window, "uri": uri}
    return {
        "operation": operation,
        "version": EXPORT_VERSION,
        "settings": {},
        "destination": destination,
        "inputs": inputs,
    }


def write_document(export: ObjectExport, key: str, path: Path) -> Metrics:
    """Write the document to `path`. After a crash: a staged file that the sweep removes."""
    path.write_bytes(premis_document(export.objects, export.events, export.agents, export.rights, unit_key=key))
    return {"objects": len(export.objects), "events": len(export.events)}


def validate_document(key: str, path: Path) -> None:
    """Read a staged document back. Raises `UnitRejected` (INVALID_OUTPUT, no retry) unless it is whole and the planned one."""
    try:
        found = read_document(path.read_bytes()).unit_key
    except ValueError as error:
        raise UnitRejected(f"{path.name}: cannot be read back: {error}", kind=ErrorKind.INVALID_OUTPUT) from error
    if found != key:
        raise UnitRejected(f"{path.name}: unit key: found {found}; allowed: {key}", kind=ErrorKind.INVALID_OUTPUT)


def write_events(rows: Sequence[EventRow], unit_key: str, path: Path) -> Metrics:
    """Write the table of events to `path`, by event identifier, `detail` and `linked` as JSON."""
    plain = (
        {name: getattr(row, name) for name in _SCHEMA.names}
        | {"detail": json.dumps(row.detail, sort_keys=True), "linked": json.dumps(row.linked, sort_keys=True)}
        for row in rows
    )
    facts = {"version": EXPORT_VERSION, "events": len(rows)}
    return {"events": write_keyed_table(plain, _SCHEMA, path, unit_key=unit_key, facts=facts)}
