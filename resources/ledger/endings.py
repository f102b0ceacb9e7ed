"""The statements that end an attempt and move its unit, shared by what fails, completes and takes over."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, update

from resources.errors import Verdict
from resources.ledger.schema import attempts, units
from resources.units import AttemptOutcome, UnitState

END_ATTEMPT = (
    update(attempts)
    .where(attempts.c.unit_id == bindparam("b_id"), attempts.c.number == bindparam("b_attempt"), attempts.c.outcome.is_(None))
    .values(
        ended_at=bindparam("b_now"),
        outcome=bindparam("b_outcome"),
        is_counted=bindparam("b_counted"),
        verdict=bindparam("b_verdict"),
        error_kind=bindparam("b_kind"),
        reason=bindparam("b_reason"),
        duration_s=bindparam("b_duration"),
    )
)
FAIL_UNIT = (
    update(units)
    .where(units.c.id == bindparam("b_id"), units.c.attempt == bindparam("b_attempt"), units.c.state == UnitState.RUNNING)
    .values(
        state=bindparam("b_to"),
        attempts=units.c.attempts + bindparam("b_count"),
        suspect=bindparam("b_suspect"),
        error_kind=bindparam("b_kind"),
        reason=bindparam("b_reason"),
        retry_at=bindparam("b_retry_at", type_=units.c.retry_at.type),
        blocked_by=bindparam("b_blocked_by"),
    )
)


def ending(
    unit_id: int,
    attempt: int,
    now: datetime,
    outcome: AttemptOutcome,
    *,
    is_counted: bool = False,
    verdict: Verdict | None = None,
    kind: str | None = None,
    reason: str | None = None,
    duration_s: float | None = None,
) -> dict[str, Any]:
    """Parameters of `END_ATTEMPT`. `is_counted`: it counts towards the unit's bound."""
    return {
        "b_id": unit_id,
        "b_attempt": attempt,
        "b_now": now,
        "b_outcome": outcome,
        "b_counted": is_counted,
        "b_verdict": verdict,
        "b_kind": kind,
        "b_reason": reason,
        "b_duration": duration_s,
    }
