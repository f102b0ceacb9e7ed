"""The table of findings: found by its headers, read by the places of its columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from assets.inspections.extraction import Cell, Line

_SLACK = 3.0
"""Points by which a cell may stand left of its header."""


@dataclass(frozen=True, slots=True)
class FindingsRule:
    """Columns as (name in the record, header in the report)."""

    columns: tuple[tuple[str, str], ...]
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """The rows of the table by name of the column, and which lines of the report (by position) belong to it."""

    rows: tuple[Mapping[str, str], ...]
    lines: frozenset[int]
    is_there: bool


def find_findings(lines: Sequence[Line], rule: FindingsRule) -> Findings:
    """Read the table wherever its headers stand: once, or again on every page.

    A row begins where the first column has text; a line without it continues the row before. A table ends at the end of its page
    or at the first line that has something outside its columns.
    """
    rows: list[dict[str, str]] = []
    taken: set[int] = set()
    is_there, at = False, 0
    while at < len(lines):
        columns = _headers(lines[at], rule)
        if columns is None:
            at += 1
            continue
        is_there, page = True, lines[at].page
        taken.add(at)
        at += 1
        is_begun = False
        while at < len(lines) and lines[at].page == page and _headers(lines[at], rule) is None:
            placed = _placed(lines[at], columns)
            if placed is None:
                break
            if columns[0][0] in placed:
                rows.append({name: placed.get(name, "") for name, _ in rule.columns})
                is_begun = True
            elif is_begun:
                for name, text in placed.items():
                    rows[-1][name] = f"{rows[-1][name]} {text}".strip()
            else:
                break
            taken.add(at)
            at += 1
    return Findings(tuple(rows), frozenset(taken), is_there)


def _headers(line: Line, rule: FindingsRule) -> list[tuple[str, float]] | None:
    """Name and left edge of each column, left to right; None for a line that is not the headers."""
    wanted = {_plain(header): name for name, header in rule.columns}
    if len(line.cells) != len(wanted):
        return None
    found = [(wanted.get(_plain(cell.text)), cell.left) for cell in line.cells]
    columns = [(name, left) for name, left in found if name is not None]
    return columns if {name for name, _ in columns} == set(wanted.values()) else None


def _placed(line: Line, columns: Sequence[tuple[str, float]]) -> dict[str, str] | None:
    """The text of each column on this line; None for a line that is none of the table."""
    placed: dict[str, list[str]] = {}
    edges = [*columns, ("", float("inf"))]
    for cell in line.cells:
        for (name, left), (_, following) in pairwise(edges):
            if left - _SLACK <= cell.left < following - _SLACK:
                if cell.right > following + _SLACK:
                    # a heading or a sentence runs through the columns
                    return None
                placed.setdefault(name, []).append(_text(cell))
                break
        else:
            return None
    return {name: " ".join(texts) for name, texts in placed.items()}


def _text(cell: Cell) -> str:
    return re.sub(r"\s+", " ", cell.text).strip()


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
