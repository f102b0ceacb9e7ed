"""Requests for runs, and processed markers: what the sensors must not forget between two ticks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import and_, delete, select, update

from resources.ledger.connection import Connected, chunks
from resources.ledger.rows import Marker, RequestRow
from resources.ledger.schema import facts, markers, partitions, requests

_LAST_NUMBER = "last_request_number"


class Requests(Connected):
    """Reads and writes of requests and markers. `Ledger` adds `partition_ids`."""

    def next_request_number(self) -> int:
        """A number never given before. After a crash: a number may be lost, none is given twice."""
        with self.writing() as connection:
            self.insert_new(connection, facts, [{"name": _LAST_NUMBER, "value": "0"}])
            last = connection.execute(select(facts.c.value).where(facts.c.name == _LAST_NUMBER).with_for_update()).scalar_one()
            number = int(last) + 1
            connection.execute(update(facts).where(facts.c.name == _LAST_NUMBER).values(value=str(number)))
        return number

    def write_requests(self, asset: str, rows: Iterable[RequestRow]) -> None:
        """Write the latest request of each partition, as given. After a crash: all of them, or none."""
        statement = self.insert(requests)
        names = ("number", "run_key", "requested_at", "run_id", "state", "unsettled", "attempts", "fruitless")
        fresh: dict[str, Any] = {name: statement.excluded[name] for name in names}
        statement = statement.on_conflict_do_update(index_elements=["partition_id"], set_=fresh)
        wanted = {row.partition: row for row in rows}
        if not wanted:
            return
        with self.writing() as connection:
            for chunk in chunks(wanted):
                self.insert_new(connection, partitions, [{"asset": asset, "partition": name} for name in chunk])
                ids = connection.execute(
                    select(partitions.c.id, partitions.c.partition)
                    .where(partitions.c.asset == asset, partitions.c.partition.in_(chunk))
                    .order_by(partitions.c.id)
                ).all()
                connection.execute(
                    statement,
                    [
                        {"partition_id": number, **{column: getattr(wanted[name], column) for column in names}}
                        for number, name in ids
                    ],
                )

    def requests(self, asset: str) -> dict[str, RequestRow]:
        """The latest request of each partition that ever had one."""
        statement = (
            select(
                partitions.c.partition,
                requests.c.number,
                requests.c.run_key,
                requests.c.requested_at,
                requests.c.run_id,
                requests.c.state,
                requests.c.unsettled,
                requests.c.attempts,
                requests.c.fruitless,
            )
            .join(partitions, partitions.c.id == requests.c.partition_id)
            .where(partitions.c.asset == asset)
        )
        with self.reading() as connection:
            return {row.partition: RequestRow(*row) for row in connection.execute(statement)}

    def marker(self, asset: str, window: str) -> Marker | None:
        """The processed marker of a window; None when it was never wholly settled, or was cleared."""
        statement = select(markers.c.manifest_fingerprint, markers.c.config_fingerprint, markers.c.at).where(
            markers.c.asset == asset, markers.c.window == window
        )
        with self.reading() as connection:
            row = connection.execute(statement).first()
        return None if row is None else Marker(*row)

    def markers(self, asset: str) -> dict[str, Marker]:
        """The processed markers of all windows that have one."""
        statement = select(markers.c.window, markers.c.manifest_fingerprint, markers.c.config_fingerprint, markers.c.at).where(
            markers.c.asset == asset
        )
        with self.reading() as connection:
            return {row.window: Marker(*row[1:]) for row in connection.execute(statement)}

    def set_marker(self, asset: str, window: str, *, manifest_fingerprint: str, config_fingerprint: str) -> None:
        """Mark a window as wholly settled under these fingerprints."""
        statement = self.insert(markers)
        names = ("manifest_fingerprint", "config_fingerprint", "at")
        statement = statement.on_conflict_do_update(
            index_elements=["asset", "window"], set_={name: statement.excluded[name] for name in names}
        )
        values = {"manifest_fingerprint": manifest_fingerprint, "config_fingerprint": config_fingerprint, "at": self.clock()}
        with self.writing() as connection:
            connection.execute(statement, {"asset": asset, "window": window} | values)

    def confirm_marker(self, asset: str, window: str, *, begun: str, manifest_fingerprint: str, config_fingerprint: str) -> bool:
        """Mark a window, if the marker still is the one that was set with `begun` as its settings' fingerprint.

        False, and no marker, when another has begun the same in between: what the two wrote may be mixed.
        """
        is_mine = and_(markers.c.asset == asset, markers.c.window == window)
        values = {"manifest_fingerprint": manifest_fingerprint, "config_fingerprint": config_fingerprint, "at": self.clock()}
        with self.writing() as connection:
            statement = update(markers).where(is_mine, markers.c.config_fingerprint == begun).values(**values)
            if connection.execute(statement).rowcount == 1:
                return True
            connection.execute(delete(markers).where(is_mine))
            return False
