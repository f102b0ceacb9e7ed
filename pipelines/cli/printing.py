"""How facts are printed: tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def progress_of_units(console: Console, *, is_quiet: bool = False) -> Progress:
    """A progress bar for each task: done of planned, and a `note`."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, disable=is_quiet)


def as_plain(value: Any) -> Any:
    """Plain JSON values: times as ISO 8601 in UTC, states as their names, the text of JSON columns as what it says."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if not field.name.startswith("_")}
        return {name.removesuffix("_json"): _unpacked(name, item) for name, item in fields.items()}
    if isinstance(value, dict):
        return {str(as_plain(name)): as_plain(item) for name, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return str(value) if isinstance(value, Path) else value


def _unpacked(name: str, value: Any) -> Any:
    return json.loads(value) if name.endswith("_json") and isinstance(value, str) else as_plain(value)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(as_plain(value), indent=2))


def print_json_rows(rows: Iterable[Any]) -> int:
    """A JSON list, row by row, so that half a million rows need no memory; returns how many."""
    number = 0
    for row in rows:
        sys.stdout.write(("[\n" if number == 0 else ",\n") + json.dumps(as_plain(row)))
        number += 1
    sys.stdout.write("[]\n" if number == 0 else "\n]\n")
    return number


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Sequence[str] = ()) -> None:
    """A table on standard output; columns in `numbers` are aligned right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        # as Text: names and reasons from outside are not markup
        table.add_row(*(Text(show(item)) for item in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # a pipe or a log has no width of its own
    console.print(table)


def show(value: Any) -> str:
    """A value for a cell: control characters of foreign names never reach the terminal."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    text = str(value.value if isinstance(value, Enum) else value)
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def open_words(window: str, until: datetime) -> str:
    """What is said of a batch window that is not over, and that nobody has asked for."""
    return f"{window} is open until {show(until)}: it runs when it is over, or now with `tilewright run -w {window}`"


def show_bytes(size: float | None) -> str:
    """A size with three digits and its unit."""
    if size is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
