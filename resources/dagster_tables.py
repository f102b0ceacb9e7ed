"""Tables as Dagster's pages show them."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg


def table(
    rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str] = (), numbers: Sequence[str] = ()
) -> dg.TableMetadataValue:
    """A table for metadata. `columns`: by default those of the first row; `numbers` are whole ones."""
    shown = [dg.TableColumn(name, "int" if name in numbers else "string") for name in columns or rows[0]]
    return dg.MetadataValue.table(records=[dg.TableRecord(dict(row)) for row in rows], schema=dg.TableSchema(columns=shown))
