"""What was seen of files once: captures, pinned for ever, and observations of content under a version token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from sqlalchemy import func, select

from resources.ledger.connection import chunks
from resources.ledger.facts import Capture, Observation
from resources.ledger.row_outputs import RowOutputs
from resources.ledger.rows import dump
from resources.ledger.schema_rows import captures, observations
from resources.units import Row


class Captures(RowOutputs):
    """Reads and writes of captures and observations."""

    def capture(self, found: Iterable[Capture]) -> None:
        """Pin files as they were taken in. A URI that was captured before keeps its first capture, whatever is said now."""
        for some in chunks(found):
            rows = [
                {
                    "uri": item.uri,
                    "sha256": item.sha256,
                    "size_bytes": item.size_bytes,
                    "mtime_ns": item.mtime_ns,
                    "batch": item.batch,
                    "window": item.window,
                    "captured_at": item.captured_at,
                    "facts": dump(dict(item.facts)),
                }
                for item in some
            ]
            with self.writing() as connection:
                self.insert_new(connection, captures, rows)

    def captures(
        self, uris: Iterable[str] | None = None, sha256s: Iterable[str] | None = None, window: str | None = None
    ) -> Iterator[Capture]:
        """Captures by filter, a stream; of one digest, and without a filter of keys, the first capture first."""
        if uris is not None and sha256s is not None:
            raise ValueError("captures are asked for by URI or by digest, not by both")
        where = [] if window is None else [captures.c.window == window]
        column, keys = (captures.c.uri, uris) if sha256s is None else (captures.c.sha256, sha256s)
        for some in [None] if keys is None else chunks(dict.fromkeys(keys)):
            chosen = where if some is None else [*where, column.in_(some)]
            for row in self.pages(select(captures).where(*chosen), captures.c.id):
                yield Capture(
                    uri=row.uri,
                    sha256=row.sha256,
                    size_bytes=row.size_bytes,
                    mtime_ns=row.mtime_ns,
                    batch=row.batch,
                    window=row.window,
                    captured_at=row.captured_at,
                    facts=json.loads(row.facts),
                )

    def count_captures(self) -> int:
        """How many files were taken in."""
        with self.reading() as connection:
            return connection.execute(select(func.count()).select_from(captures)).scalar_one()

    def observe(self, *seen: Observation) -> None:
        """Remember under which version token a URI's content had which digest; the newest stands."""
        now = self.clock()
        for some in chunks(seen):
            with self.writing() as connection:
                rows = [Row("observations", {name: getattr(item, name) for name in Observation.__slots__}) for item in some]
                self._observe(connection, rows, now=now)

    def observations(self, uris: Iterable[str]) -> dict[str, Observation]:
        """What was last observed of these URIs, by URI; those never observed are absent."""
        found: dict[str, Observation] = {}
        with self.reading() as connection:
            for some in chunks(uris):
                for row in connection.execute(select(observations).where(observations.c.uri.in_(some))):
                    found[row.uri] = Observation(row.uri, row.token, row.digest, row.seen_at)
        return found
