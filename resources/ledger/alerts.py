"""The outbox of alerts: one row for a fact, kept until it was delivered, said again while a standing fact stands.

Closes the window between a fact and its telling: the row is written first, sent next, marked last. A process that dies between
sending and marking sends twice; nothing is ever not sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import and_, or_, select, update

from resources.ledger.connection import Connected, chunks
from resources.ledger.rows import AlertRow
from resources.ledger.schema import alerts


class Alerts(Connected):
    """Reads and writes of the outbox."""

    def enqueue_alert(self, fingerprint: str, *, title: str, body: str, severity: str, is_standing: bool = False) -> bool:
        """Put an alert into the outbox unless its fact is there; true when it was new.

        A standing fact that was resolved and is true again counts as new; one that stands gets its newest text.
        """
        now = self.clock()
        values = {"title": title, "body": body, "severity": severity, "is_standing": is_standing}
        with self.writing() as connection:
            row = connection.execute(
                select(alerts.c.id, alerts.c.resolved_at).where(alerts.c.fingerprint == fingerprint).with_for_update()
            ).first()
            if row is None:
                added = connection.execute(
                    self.insert(alerts).on_conflict_do_nothing().returning(alerts.c.id),
                    values | {"fingerprint": fingerprint, "created_at": now},
                ).first()
                return added is not None
            if not is_standing:
                return False
            if row.resolved_at is not None:
                values |= {"resolved_at": None, "sent_at": None, "created_at": now}
            connection.execute(update(alerts).where(alerts.c.id == row.id).values(**values))
            return row.resolved_at is not None

    def due_alerts(self, *, now: datetime, repeat_every: timedelta) -> list[AlertRow]:
        """Alerts to be sent: those never sent, and standing ones last sent `repeat_every` ago; oldest first."""
        columns = alerts.c
        statement = (
            select(
                columns.id,
                columns.fingerprint,
                columns.title,
                columns.body,
                columns.severity,
                columns.is_standing,
                columns.created_at,
                columns.sent_at,
                columns.times_sent,
            )
            .where(
                columns.resolved_at.is_(None),
                or_(columns.sent_at.is_(None), and_(columns.is_standing, columns.sent_at <= now - repeat_every)),
            )
            .order_by(columns.created_at, columns.id)
        )
        with self.reading() as connection:
            return [AlertRow(*row) for row in connection.execute(statement)]

    def mark_alert_sent(self, alert_id: int, at: datetime) -> None:
        """Record a delivery. After a crash before this: the alert is sent once more."""
        with self.writing() as connection:
            connection.execute(
                update(alerts).where(alerts.c.id == alert_id).values(sent_at=at, times_sent=alerts.c.times_sent + 1)
            )

    def resolve_alerts(self, still_true: Iterable[str], *, prefix: str = "") -> int:
        """Close standing alerts whose fingerprint begins with `prefix` and is not among these; how many. They fall silent."""
        keep = set(still_true)
        now = self.clock()
        closed = 0
        with self.writing() as connection:
            rows = connection.execute(
                select(alerts.c.id, alerts.c.fingerprint).where(alerts.c.is_standing, alerts.c.resolved_at.is_(None))
            ).all()
            over = [row.id for row in rows if row.fingerprint.startswith(prefix) and row.fingerprint not in keep]
            for chunk in chunks(over):
                closed += connection.execute(update(alerts).where(alerts.c.id.in_(chunk)).values(resolved_at=now)).rowcount
        return closed
