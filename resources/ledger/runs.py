"""Runs of the engine: begun, alive, ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update

from resources.ledger.connection import Connected
from resources.ledger.rows import RunRow, dump
from resources.ledger.schema import runs
from resources.units import RunOutcome, RunSummary


class Runs(Connected):
    """Reads and writes of runs."""

    def begin_run(self, run: RunRow) -> None:
        """Record that a run began; begun again under one id, it is the new process that counts."""
        values = {
            "run_id": run.run_id,
            "asset": run.asset,
            "partitions": dump(list(run.partitions)),
            "pid": run.pid,
            "host": run.host,
            "boot_id": run.boot_id,
            "started_at": run.started_at,
            "heartbeat_at": run.heartbeat_at or run.started_at,
            "ended_at": run.ended_at,
            "outcome": run.outcome,
            "summary": None if run.summary is None else dump(dict(run.summary)),
            "requested_by": run.requested_by,
        }
        statement = self.insert(runs)
        fresh = {name: statement.excluded[name] for name in values if name != "run_id"}
        with self.writing() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["run_id"], set_=fresh), values)

    def heartbeat(self, run_id: str) -> None:
        """Say that the run is alive now."""
        statement = update(runs).where(runs.c.run_id == run_id)
        self.write(lambda connection: connection.execute(statement.values(heartbeat_at=self.clock())))

    def end_run(self, run_id: str, summary: RunSummary) -> None:
        """Record how the run ended. After a crash before this: the run stays unended, and its alone attempt may be charged."""
        now = self.clock()
        statement = (
            update(runs)
            .where(runs.c.run_id == run_id)
            .values(ended_at=now, heartbeat_at=now, outcome=summary.outcome, summary=dump(asdict(summary)))
        )
        self.write(lambda connection: connection.execute(statement))

    def run(self, run_id: str) -> RunRow | None:
        """The run of that id."""
        with self.reading() as connection:
            row = connection.execute(select(runs).where(runs.c.run_id == run_id)).mappings().first()
        return None if row is None else _as_run(row)

    def runs(self, *, limit: int = 50, unended: bool = False) -> list[RunRow]:
        """The newest runs first; only those that did not end, if asked."""
        statement = select(runs).order_by(runs.c.number.desc()).limit(limit)
        if unended:
            statement = statement.where(runs.c.ended_at.is_(None))
        with self.reading() as connection:
            return [_as_run(row) for row in connection.execute(statement).mappings()]


def _as_run(row: Mapping[str, Any] | Any) -> RunRow:
    return RunRow(
        run_id=row["run_id"],
        asset=row["asset"],
        partitions=tuple(json.loads(row["partitions"])),
        pid=row["pid"],
        host=row["host"],
        boot_id=row["boot_id"],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        ended_at=row["ended_at"],
        outcome=None if row["outcome"] is None else RunOutcome(row["outcome"]),
        summary=None if row["summary"] is None else json.loads(row["summary"]),
        requested_by=row["requested_by"],
    )
