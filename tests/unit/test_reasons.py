"""Reasons that no database takes as they are: they are recorded all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resources.errors import UnitRejected, Verdict
from resources.ledger import Ledger
from resources.verdicts import classify
from tests.support.ledgers import ASSET, failure, partition_plan, planned_unit, run_row, start_one


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("tag holds \0 and more"), "ValueError: tag holds \\x00 and more"),
        (UnitRejected("scene-\udcff.tif cannot be read"), "scene-\\udcff.tif cannot be read"),
        (UnitRejected("\0" * 5_000), "\\x00" * 500),
    ],
)
def test_any_reason_can_be_recorded(ledger: Ledger, error: Exception, expected: str) -> None:
    """A zero byte and a byte that is no text become visible escapes; the dead letter is written on every database."""
    unit = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan("p", [unit])])
    ledger.begin_run(run_row("r", ["p"]))
    attempt = start_one(ledger, "r", unit)
    message = classify(error).message
    ledger.fail("r", [replace(failure(unit, attempt, verdict=Verdict.QUARANTINE), message=message)])
    assert [letter.reason for letter in ledger.dead_letters()] == [expected]
