"""What Dagster is told of fixity: which periods a day's run works on, and what is said while an object is not itself."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest

from assets.digitization.fixity import Mismatch
from pipelines.fixity import fixity_mismatches, mismatch_facts, periods_at
from pipelines.partitions import period_partitions
from pipelines.watched import Watched
from resources.config import WindowConfig
from resources.windows import WindowCalendar

CALENDAR = WindowCalendar(WindowConfig.model_validate({"start": "2026-01-15", "every": "month"}))
WATCHED = Watched("fixity_checks", dg.StaticPartitionsDefinition(["2026-01"]), ("job",))
MISMATCH = Mismatch("box1/0001.tif", "aa" * 32, "bb" * 32, datetime(2026, 1, 20, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2026, 1, 20, 2, 23, tzinfo=UTC), ["2026-01"]),
        (datetime(2026, 2, 1, 2, 23, tzinfo=UTC), ["2026-01", "2026-02"]),
        (datetime(2026, 2, 2, 2, 23, tzinfo=UTC), ["2026-01", "2026-02"]),
        (datetime(2026, 2, 3, 2, 23, tzinfo=UTC), ["2026-02"]),
        (datetime(2025, 12, 31, 2, 23, tzinfo=UTC), []),
    ],
)
def test_a_day_works_on_its_period_and_on_what_the_last_one_left(moment: datetime, expected: list[str]) -> None:
    """What came due in the last hours of a period is read in the first days of the next; before the first there is nothing."""
    assert [period.key for period in periods_at(CALENDAR, moment)] == expected


def test_the_current_period_is_a_partition() -> None:
    """Batch windows are partitions when they are over; a period is worked on while it lasts."""
    keys = period_partitions(CALENDAR).get_partition_keys(current_time=datetime(2026, 3, 10, tzinfo=UTC))
    assert keys == ["2026-01", "2026-02", "2026-03"]


def test_a_mismatch_names_object_expected_and_found() -> None:
    """Check and alert both say what was read, what it should be and what it is; without a mismatch nothing is said."""
    found = fixity_mismatches(WATCHED, [MISMATCH])
    (fact,) = mismatch_facts([MISMATCH])
    assert not found.passed
    for text in (found.description, f"{fact.title} {fact.body}"):
        assert all(part in text for part in (MISMATCH.object, MISMATCH.expected, MISMATCH.found))
    assert fact.repeats
    assert fixity_mismatches(WATCHED, []).passed
    assert mismatch_facts([]) == []


def test_a_lost_disk_is_no_flood_of_alerts() -> None:
    """The first objects by name, and one alert for the rest."""
    many = [Mismatch(f"box/{number:04d}.tif", "aa" * 32, "nothing", MISMATCH.at) for number in range(1_000)]
    facts = mismatch_facts(many)
    assert len({fact.fingerprint for fact in facts}) == len(facts) == 21
    assert facts[0].title.endswith("box/0000.tif does not hold its content")
    assert "980 more objects" in facts[-1].title


def test_another_content_is_another_alert() -> None:
    """An object that changed once more is told anew; the same state of affairs is one fact."""
    again = Mismatch(MISMATCH.object, MISMATCH.expected, MISMATCH.found, datetime(2026, 1, 21, tzinfo=UTC))
    other = Mismatch(MISMATCH.object, MISMATCH.expected, "cc" * 32, MISMATCH.at)
    prints = [fact.fingerprint for fact in mismatch_facts([MISMATCH, again, other])]
    assert prints[0] == prints[1] != prints[2]
