"""The page about the ledger database against its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resources.ledger.schema import metadata
from resources.ledger.schema_rows import captures, inspection_records, observations, preservation_events
from resources.row_tables import ROW_TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")


def test_every_table_is_on_the_page() -> None:
    """The page names every table of the ledger."""
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert metadata.tables.keys() <= named


@pytest.mark.parametrize("table", [preservation_events, inspection_records, captures, observations], ids=lambda table: table.name)
def test_every_column_that_people_query_is_on_the_page(table: object) -> None:
    """The page names every column of the tables that hold rows and facts."""
    section = PAGE[PAGE.index(f"`{table.name}`") :]
    assert set(table.c.keys()) <= set(re.findall(r"`([a-z_0-9]+)`", section))


@pytest.mark.parametrize("name", sorted(ROW_TABLES))
def test_a_row_says_columns_of_its_table(name: str) -> None:
    """What a unit may say in a row are columns of the table that keeps it."""
    table = ROW_TABLES[name]
    assert {*table.key} <= table.said.keys()
    assert {*table.said, table.time} <= set(metadata.tables[name].c.keys())
