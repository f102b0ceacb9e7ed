"""The outbox of alerts: one row for a fact, kept until it was delivered, said again while a standing fact stands.

Closes the window between a fact and its telling: the row is written first, sent next, marked last. A process that dies between
sending and marking sends twice; nothing is ever not sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import and_, delete, or_, select, update

from resources.ledger.connection import Connected, chunks
from resources.ledger.rows import AlertRow
from resources.ledger.schema import alert_deliveries, alerts


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
                connection.execute(delete(alert_deliveries).where(alert_deliveries.c.alert_id == row.id))
            connection.execute(update(alerts).where(alerts.c.id == row.id).values(**values))
            return row.resolved_at is not None

    def due_alerts(self, *, now: datetime, repeat_every: timedelta) -> list[AlertRow]:
        """Alerts to be sent: those not all channels have, and standing ones last sent `repeat_every` ago; oldest first.

        One that was resolved before it could be told is told once all the same.
        """
        columns = alerts.c
        statement = (
            select(
                columns.id,
                columns.fingerprint,
                columns.title,
                columns.body,
                columns.severity,
                and_(columns.is_standing, columns.resolved_at.is_(None)).label("is_standing"),
                columns.created_at,
                columns.sent_at,
                columns.times_sent,
            )
            .where(
                or_(
                    columns.sent_at.is_(None),
                    and_(columns.resolved_at.is_(None), columns.is_standing, columns.sent_at <= now - repeat_every),
                )
            )
            .order_by(columns.created_at, columns.id)
        )
        with self.reading() as connection:
            rows = connection.execute(statement).all()
            taken: dict[int, dict[str, datetime]] = {}
            for chunk in chunks(row.id for row in rows):
                for alert_id, channel, at in connection.execute(
                    select(alert_deliveries).where(alert_deliveries.c.alert_id.in_(chunk))
                ):
                    taken.setdefault(alert_id, {})[channel] = at
        return [AlertRow(**row._mapping, deliveries=taken.get(row.id, {})) for row in rows]

    def note_alert_delivery(self, alert_id: int, channel: str, at: datetime) -> None:
        """Record that one channel took an alert. After a crash before this: that channel gets it once more."""
        with self.writing() as connection:
            connection.execute(
                self.insert(alert_deliveries).on_conflict_do_update(index_elements=["alert_id", "channel"], set_={"at": at}),
                {"alert_id": alert_id, "channel": channel, "at": at},
            )

    def mark_alert_sent(self, alert_id: int, at: datetime) -> None:
        """Record that every channel has the alert, the last time at `at`."""
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
