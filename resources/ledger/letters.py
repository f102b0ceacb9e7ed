"""Opening and closing dead letters inside another write: the shared half of `attempts`, `plan` and `dead_letters`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, update

from resources.errors import Verdict
from resources.keys import audit_hash
from resources.ledger.connection import chunks
from resources.ledger.rows import LetterStatus
from resources.ledger.schema import attempts, dead_letters, notes, units

UNIT = "unit"
INPUT = "input"


def open_unit_letters(connection: Connection, quarantined: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    """Open one dead letter for each unit (mappings with unit_id, kind, verdict, reason), which the caller has quarantined."""
    if not quarantined:
        return
    by_id = {item["unit_id"]: item for item in quarantined}
    values = []
    for chunk in chunks(sorted(by_id)):
        firsts = dict(
            connection.execute(
                select(attempts.c.unit_id, func.min(attempts.c.started_at))
                .join(units, units.c.id == attempts.c.unit_id)
                .where(attempts.c.unit_id.in_(chunk), attempts.c.round == units.c.round)
                .group_by(attempts.c.unit_id)
            )
            .tuples()
            .all()
        )
        for unit in connection.execute(select(units).where(units.c.id.in_(chunk))).mappings():
            item = by_id[unit["id"]]
            values.append(
                {
                    "subject": UNIT,
                    "subject_key": unit["key"],
                    "name": unit["output_uri"],
                    "asset": unit["asset"],
                    "product": unit["product"],
                    "window": unit["window"],
                    "tile": unit["tile"],
                    "kind": item["kind"],
                    "verdict": item["verdict"],
                    "reason": item["reason"],
                    "attempts": unit["attempts"],
                    "first_at": firsts.get(unit["id"], now),
                    "last_at": now,
                    "audit_hash": audit_hash(unit["key"], item["reason"]),
                    "round": unit["round"],
                    "status": LetterStatus.OPEN,
                }
            )
    close_letters(connection, UNIT, [value["subject_key"] for value in values], LetterStatus.RESOLVED, now=now)
    connection.execute(dead_letters.insert(), values)


def input_letter(
    *, digest: str, name: str, kind: str, reason: str, window: str | None, round_number: int, now: datetime
) -> dict[str, Any]:
    """The values of a dead letter for a rejected input."""
    return {
        "subject": INPUT,
        "subject_key": digest,
        "name": name,
        "window": window,
        "kind": kind,
        "verdict": Verdict.QUARANTINE,
        "reason": reason,
        "attempts": 1,
        "first_at": now,
        "last_at": now,
        "audit_hash": audit_hash(digest, reason),
        "round": round_number,
        "status": LetterStatus.OPEN,
    }


def close_letters(connection: Connection, subject: str, keys: Iterable[str], status: LetterStatus, *, now: datetime) -> int:
    """Close the open dead letters of these subjects; the number closed."""
    closed = 0
    for chunk in chunks(keys):
        closed += connection.execute(
            update(dead_letters)
            .where(
                dead_letters.c.status == LetterStatus.OPEN,
                dead_letters.c.subject == subject,
                dead_letters.c.subject_key.in_(chunk),
            )
            .values(status=status, closed_at=now)
        ).rowcount
    return closed


def reopen_superseded(connection: Connection, subject: str, keys: Iterable[str]) -> int:
    """Open again the newest dead letter of each subject, where it was closed as SUPERSEDED; the number opened."""
    opened = 0
    for chunk in chunks(keys):
        newest = (
            select(func.max(dead_letters.c.id))
            .where(dead_letters.c.subject == subject, dead_letters.c.subject_key.in_(chunk))
            .group_by(dead_letters.c.subject_key)
        )
        opened += connection.execute(
            update(dead_letters)
            .where(dead_letters.c.id.in_(newest), dead_letters.c.status == LetterStatus.SUPERSEDED)
            .values(status=LetterStatus.OPEN, closed_at=None)
        ).rowcount
    return opened


def add_notes(
    connection: Connection,
    unit_ids: Iterable[int],
    what: str,
    *,
    now: datetime,
    kind: str | None = None,
    reason: str | None = None,
    who: str | None = None,
) -> None:
    """Note one happening in the history of each unit."""
    values = [{"unit_id": item, "at": now, "what": what, "error_kind": kind, "reason": reason, "who": who} for item in unit_ids]
    if values:
        connection.execute(notes.insert(), values)
