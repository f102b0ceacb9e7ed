"""Recorded outputs and put-off units: what reconciliation, the breaker and the sweep ask for beside plan and attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from sqlalchemy import and_, func, select, update

from resources.errors import Verdict
from resources.ledger.connection import chunks
from resources.ledger.reading import Reading
from resources.ledger.rows import LetterStatus, UnitRow
from resources.ledger.schema import attempts, dead_letters, membership, units
from resources.row_tables import ROW_SCHEME
from resources.units import AttemptOutcome, UnitState

_OVER = (UnitState.SUPERSEDED, UnitState.RETIRED)


class Housekeeping(Reading):
    """Reads and writes about outputs that are over, and units that must wait."""

    def recorded_outputs(self, uris: Iterable[str]) -> set[str]:
        """Those of the URIs that some unit, living or over, is recorded to have made."""
        found: set[str] = set()
        with self.reading() as connection:
            for chunk in chunks(uris):
                found.update(
                    connection.execute(
                        select(units.c.output_uri).where(units.c.output_uri.in_(chunk), units.c.output_digest.is_not(None))
                    ).scalars()
                )
        return found

    def defer(self, keys: Iterable[str], *, retry_at: datetime, reason: str) -> int:
        """Put off PENDING and FAILED units: they are not due before `retry_at`. Nothing is charged."""
        moved = 0
        with self.writing() as connection:
            for chunk in chunks(keys):
                moved += connection.execute(
                    update(units)
                    .where(units.c.key.in_(chunk), units.c.state.in_((UnitState.PENDING, UnitState.FAILED)))
                    .values(retry_at=retry_at, reason=reason)
                ).rowcount
        return moved

    def void_failures(self, run_id: str, keys: Iterable[str], *, retry_at: datetime, reason: str) -> int:
        """Take back what one run charged to these units, their source being unwell: they are PENDING, not before `retry_at`.

        The attempts stay in the history as VOID. A unit that they brought into quarantine leaves it, its dead letter closed.
        """
        moved = 0
        with self.writing() as connection:
            for chunk in chunks(keys):
                ids = list(connection.execute(select(units.c.id).where(units.c.key.in_(chunk))).scalars())
                taken = and_(
                    attempts.c.run_id == run_id,
                    attempts.c.unit_id.in_(ids),
                    attempts.c.outcome == AttemptOutcome.FAILED,
                    attempts.c.verdict == Verdict.RETRY,
                )
                charged = select(func.count()).where(taken, attempts.c.unit_id == units.c.id, attempts.c.is_counted)
                moved += connection.execute(
                    update(units)
                    .where(units.c.id.in_(ids), units.c.state.in_((UnitState.FAILED, UnitState.QUARANTINED)))
                    .values(
                        state=UnitState.PENDING,
                        attempts=units.c.attempts - charged.scalar_subquery(),
                        retry_at=retry_at,
                        reason=reason,
                        error_kind=None,
                    )
                ).rowcount
                connection.execute(update(attempts).where(taken).values(outcome=AttemptOutcome.VOID, is_counted=False))
                connection.execute(
                    update(dead_letters)
                    .where(
                        dead_letters.c.subject == "unit",
                        dead_letters.c.subject_key.in_(chunk),
                        dead_letters.c.status == LetterStatus.OPEN,
                    )
                    .values(status=LetterStatus.SUPERSEDED, closed_at=self.clock(), why=reason)
                )
        return moved

    def superseded_outputs(self, *, before: datetime) -> Iterator[UnitRow]:
        """Units that left the plan before that time and whose output, a file or a directory, is still on record."""
        over = select(units.c.key).where(
            units.c.state.in_(_OVER),
            units.c.output_digest.is_not(None),
            units.c.left_at < before,
            ~units.c.output_uri.startswith(ROW_SCHEME),
        )
        with self.reading() as connection:
            keys = list(connection.execute(over).scalars())
        yield from self.units(keys=keys)

    def forget_output(self, key: str, *, before: datetime) -> bool:
        """Forget that a unit's output was recorded, if it is still over and in no plan: asked again just before the deletion.

        False: the unit is wanted again, or another living unit has the same URI; its output must stay.
        """
        with self.writing() as connection:
            row = connection.execute(select(units.c.id, units.c.output_uri).where(units.c.key == key)).first()
            if row is None:
                return False
            shared = connection.execute(
                select(units.c.id).where(units.c.output_uri == row.output_uri, units.c.id != row.id, units.c.state.not_in(_OVER))
            ).first()
            if shared is not None:
                return False
            return (
                connection.execute(
                    update(units)
                    .where(
                        units.c.id == row.id,
                        units.c.state.in_(_OVER),
                        units.c.left_at < before,
                        units.c.id.not_in(select(membership.c.unit_id)),
                    )
                    .values(output_digest=None, output_size=None, metrics=None, completed_at=None, state_before=UnitState.PENDING)
                ).rowcount
                == 1
            )
