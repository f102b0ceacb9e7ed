"""A Parquet table that bears the key of the unit that made it, so that whoever opens it can tell which one it is.

Equal rows give equal bytes: rows come in the caller's order, and nothing of a run goes into the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from assets.window_batch import window_unit
from resources.errors import ErrorKind, UnitRejected
from resources.keys import unit_key
from resources.ledger.connection import chunks
from resources.units import Metrics, UnitOfWork

Rows = TypeVar("Rows")
METADATA_KEY = b"tilewright"
_ROWS_AT_ONCE = 10_000


def write_keyed_table(
    rows: Iterable[Mapping[str, Any]], schema: pa.Schema, path: Path, *, unit_key: str, facts: Mapping[str, Any]
) -> int:
    """Write rows with their unit key and `facts` inside; returns how many. Memory is flat in their number.

    After a crash: `path` is a staging name and may hold half a file; it is written again from the start.
    """
    said = json.dumps({"unit_key": unit_key, **facts}, sort_keys=True, separators=(",", ":")).encode("ascii")
    count = 0
    with pq.ParquetWriter(path, schema.with_metadata({METADATA_KEY: said}), compression="zstd") as writer:
        for some in chunks(rows, _ROWS_AT_ONCE):
            writer.write_table(pa.Table.from_pylist(list(some), schema=writer.schema))
            count += len(some)
    return count


def check_keyed_table(unit_key: str, path: Path) -> None:
    """Open a staged table again. Raises `UnitRejected` (INVALID_OUTPUT, no retry) if it is not whole or not the planned one."""
    try:
        with pq.ParquetFile(path) as file:
            found = json.loads((file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}")).get("unit_key")
            for batch in file.iter_batches():
                batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnitRejected(f"{path.name}: cannot be read back: {error}", kind=ErrorKind.INVALID_OUTPUT) from error
    if found != unit_key:
        raise UnitRejected(f"{path.name}: unit key: found {found}; allowed: {unit_key}", kind=ErrorKind.INVALID_OUTPUT)


def keyed_table_unit(
    product: str, uri: str, *, window: str, version: str, inputs: object, rows: Rows, write: Callable[[Rows, str, Path], Metrics]
) -> UnitOfWork:
    """The unit of a window's table, made of what the ledger knows: `write(rows, unit_key, path)`.

    `version` is that of the table's form; `inputs` tells one state of the rows from another.
    """
    ingredients = {"operation": product, "version": version, "settings": {}, "destination": {"window": window}, "inputs": inputs}
    key = unit_key(**ingredients)  # type: ignore[arg-type]
    return window_unit(
        product, uri, ingredients, work=partial(write, rows, key), validate=partial(check_keyed_table, key), source="ledger"
    )
