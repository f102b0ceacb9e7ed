"""Tables that list reports: CSV with a row for each, as people and spreadsheets write it.

UTF-8 or, with a byte order mark, UTF-16; split by comma, semicolon or tab, by what the first line has. A row that cannot be used
is named with its line and leaves the others alone; a table that cannot be read at all says nothing about its window.
"""

from __future__ import annotations

import codecs
import csv
import io
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assets.fetch.uris import redacted, scheme_of
from resources.errors import UnitRejected

_BYTES_MOST = 64 << 20
_LENGTH_MOST = {"site": 200, "uri": 4000, "period": 40, "window": 40}
_REQUIRED = ("site", "uri", "period")


class TableUnreadable(Exception):
    """A table says nothing: neither which reports there are nor that there are none."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """What one row says. `window` is empty where the table has no such column."""

    line: int
    site: str
    uri: str
    period: str
    window: str = ""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: the field, what was found there and what is allowed."""

    line: int
    field: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: found {self.found!r}; allowed: {self.allowed}"


def read_table(path: Path, columns: Mapping[str, str]) -> Iterator[TableRow | BadRow]:
    """The rows of a table, blank ones left out. `columns`: the table's name for each of site, uri, period and window.

    Raises `TableUnreadable` before the first row, and nothing after it.
    """
    text = _text(path)
    head = next(iter(text.splitlines()), "")
    delimiter = max((",", ";", "\t"), key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        names = [name.strip().casefold() for name in next(reader, [])]
    except csv.Error as error:
        raise TableUnreadable(f"its first line is no list of columns: {error}") from error
    places = {field: names.index(name.casefold()) for field, name in columns.items() if name.casefold() in names}
    lacking = [columns[field] for field in _REQUIRED if field not in places]
    if lacking:
        raise TableUnreadable(f"columns: found {', '.join(names) or 'none'}; also needed: {', '.join(lacking)}")
    return _rows(reader, places)


def _rows(reader: Iterator[list[str]], places: Mapping[str, int]) -> Iterator[TableRow | BadRow]:
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = max(line + 1, getattr(reader, "line_num", line + 1))
            yield BadRow(line, "row", str(error), "one report in one line, text with quotes closed")
            continue
        line = getattr(reader, "line_num", line + 1)
        if any(cell.strip() for cell in cells):
            yield _row(line, {field: cells[at].strip() if at < len(cells) else "" for field, at in places.items()})


def _row(line: int, values: Mapping[str, str]) -> TableRow | BadRow:
    for field, value in values.items():
        if not value and field in _REQUIRED:
            return BadRow(line, field, "", "a value")
        if len(value) > _LENGTH_MOST[field]:
            return BadRow(line, field, f"{value[:40]}...", f"at most {_LENGTH_MOST[field]} characters")
        if any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
            return BadRow(line, field, redacted(value) if field == "uri" else value, "no control characters")
    try:
        scheme_of(values["uri"])
    except UnitRejected as error:
        return BadRow(line, "uri", redacted(values["uri"]), error.message)
    return TableRow(line, **values)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _BYTES_MOST:
            raise TableUnreadable(f"found {path.stat().st_size:,} bytes; allowed: {_BYTES_MOST:,}")
        content = path.read_bytes()
    except OSError as error:
        raise TableUnreadable(f"it cannot be read: {error.strerror}") from error
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise TableUnreadable(f"byte {error.start} is no {encoding}; save the table as UTF-8") from error
