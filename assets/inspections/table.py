"""The tables of a window as Parquet: the reports that its source lists, and the records that were made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.inspections.listing import ListedReport
from assets.inspections.shape import MANIFEST, RECORDS, TABLE
from assets.keyed_table import keyed_table_unit, write_keyed_table
from assets.window_batch import WindowBatch
from resources.keys import canonical, digest_of
from resources.ledger import UnitRow
from resources.ledger.facts import RecordRow
from resources.units import Metrics, UnitOfWork, UnitState

if TYPE_CHECKING:
    from assets.inspections.project import InspectionsProject

LIST_VERSION = "1"
TABLE_VERSION = "1"
"""Raise one when the bytes of its table of equal rows change."""

LIST_SCHEMA = pa.schema([(name, pa.string()) for name in ("unit_key", "site", "period", "uri", "place")])
RECORD_SCHEMA = pa.schema(
    [
        ("unit_key", pa.string()),
        ("site", pa.string()),
        ("period", pa.string()),
        ("source_uri", pa.string()),
        ("content_digest", pa.string()),
        ("page_count", pa.int32()),
        ("extraction_version", pa.string()),
        ("revision", pa.string()),
        ("fields", pa.string()),
        ("findings", pa.string()),
        ("is_current", pa.bool_()),
        ("same_content_as", pa.list_(pa.string())),
    ]
)
"""`fields` and `findings` are JSON; `same_content_as` names other addresses, of any window, that hold the same bytes. A record is
not `is_current` that stands although its report has changed since: the new content is not taken yet, or was rejected."""


def list_uri(window: str) -> str:
    """Where the list of a window's reports lies."""
    return f"{MANIFEST}/{window}.parquet"


def table_uri(window: str) -> str:
    """Where the table of a window's records lies."""
    return f"{TABLE}/{window}.parquet"


def list_rows(reports: Sequence[ListedReport]) -> list[dict[str, Any]]:
    """The rows of a list of reports, by site, period and key."""
    ordered = sorted(reports, key=lambda one: (one.site, one.period, one.key))
    return [
        {"unit_key": one.key, "site": one.site, "period": one.period, "uri": one.shown, "place": one.place} for one in ordered
    ]


@dataclass(frozen=True, slots=True)
class StandingRecord:
    """A record that stands, whether it is of the content that its report has now, and other addresses with the same bytes."""

    record: RecordRow
    is_current: bool
    same_content_as: tuple[str, ...]


def standing_records(project: InspectionsProject, window: str, rows: Iterable[UnitRow]) -> list[StandingRecord]:
    """The records of a window, by site and period. `rows`: its units."""
    current = {row.key: row.revision for row in rows if row.state is UnitState.COMPLETE}
    records = list(project.ledger.records(window=window))
    same = _same_contents(project, records)
    return [
        StandingRecord(record, current.get(record.unit_key) == record.revision, tuple(same.get(record.unit_key, ())))
        for record in records
    ]


def _same_contents(project: InspectionsProject, records: Sequence[RecordRow]) -> dict[str, list[str]]:
    """Which other addresses, of any window, hold the bytes of a record: by unit key, those without one left out."""
    addresses: dict[str, set[str]] = {}
    digests = {record.content_digest for record in records}
    for other in project.ledger.records(content_digests=digests):
        addresses.setdefault(other.content_digest, set()).add(other.source_uri)
    others = {record.unit_key: sorted(addresses[record.content_digest] - {record.source_uri}) for record in records}
    return {key: found for key, found in others.items() if found}


def table_batch(project: InspectionsProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> WindowBatch:
    """The tables of some windows."""
    units = list(rows)
    works = {window: [_table_work(window, standing_records(project, window, units))] for window in windows}
    return WindowBatch(TABLE, works, ledger=project.ledger)


def _table_work(window: str, records: Sequence[StandingRecord]) -> UnitOfWork:
    rows = tuple(_record_row(one) for one in records)
    return keyed_table_unit(
        TABLE,
        table_uri(window),
        window=window,
        version=TABLE_VERSION,
        inputs=[digest_of(row) for row in rows],
        rows=rows,
        write=write_table,
    )


def _record_row(one: StandingRecord) -> dict[str, Any]:
    record = one.record
    return {
        "unit_key": record.unit_key,
        "site": record.site,
        "period": record.period,
        "source_uri": record.source_uri,
        "content_digest": record.content_digest,
        "page_count": record.page_count,
        "extraction_version": record.extraction_version,
        "revision": record.revision,
        "fields": canonical(record.fields),
        "findings": canonical(record.findings),
        "is_current": one.is_current,
        "same_content_as": list(one.same_content_as),
    }


def write_table(rows: Sequence[dict[str, Any]], key: str, path: Path) -> Metrics:
    """Write the table of a window's records to `path`, a staging name; returns counts."""
    facts = {"version": TABLE_VERSION, "asset": RECORDS}
    written = write_keyed_table(rows, RECORD_SCHEMA, path, unit_key=key, facts=facts)
    return {
        "records": written,
        "sites": len({row["site"] for row in rows}),
        "not_current": sum(not row["is_current"] for row in rows),
        "same_content": sum(bool(row["same_content_as"]) for row in rows),
    }
