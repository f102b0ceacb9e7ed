"""Sensors and checks over a real Dagster instance, a real ledger and a real store, on both databases: tick, run, tick."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipelines.alerting import alerts_tick
from pipelines.dead_runs import report_dead_runs
from pipelines.findings import LETTERS_CHECK, UNITS_CHECK, open_dead_letters
from pipelines.reconciling_sensors import run_end_tick, tick
from pipelines.standing_checks import Telling
from resources.ledger import RunRow
from resources.units import UnitState
from resources.windows import WindowCalendar
from tests.support.batches import ASSET
from tests.support.bytes_location import (
    CHECKS_JOB,
    CONFIGURATION,
    JOB,
    BytesProject,
    Clock,
    Location,
    location,
    make_project,
    seen_partitions,
)
from tests.support.receiver import Receiver, receiving

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in beta")
WHOLE = ("w1|p0000", "w1|p0003")


@dataclass
class Stand:
    """A project, its location and its instance, driven by hand."""

    project: BytesProject
    place: Location
    instance: dg.DagsterInstance
    clock: Clock
    cursor: str | None = None
    end_cursor: str | None = None
    alert_cursor: str | None = None
    launched: list[dg.RunRequest] = field(default_factory=list)

    def run(self, start: str = WHOLE[0], end: str = WHOLE[1], **tags: str) -> dg.ExecuteInProcessResult:
        """A ranged run, as a schedule or the UI would launch it."""
        ranged = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end, **tags}
        return self.job(JOB).execute_in_process(instance=self.instance, tags=ranged, raise_on_error=False)

    def job(self, name: str) -> dg.JobDefinition:
        """A job of the location."""
        return self.place.definitions.resolve_job_def(name)

    def tick(self, *, launch: bool = True) -> dg.SensorResult:
        """One tick of the failed-partition sensor; its requests are executed unless they are to be lost."""
        found = tick(self.instance, self.project, self.place.watched, cursor=self.cursor)
        self.cursor = found.cursor
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in found.run_requests or () if launch else ():
            self.launched.append(request)
            self.job(request.job_name or JOB).execute_in_process(
                instance=self.instance,
                tags=dict(request.tags),
                partition_key=request.partition_key,
                raise_on_error=False,
            )
        return found

    def run_end(self) -> list[dg.AssetCheckEvaluation]:
        """One tick of the run-end sensor; its evaluations are stored."""
        found = run_end_tick(self.instance, self.project, [self.place.watched], cursor=self.end_cursor)
        self.end_cursor = found.cursor
        evaluations = [event for event in found.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        for event in evaluations:
            self.instance.report_runless_asset_event(event)
        return evaluations

    def alerts(self) -> dg.SensorResult:
        """One tick of the alerts sensor."""
        found = alerts_tick(
            self.project,
            [self.place.watched],
            calendar=WindowCalendar(self.project.config.window),
            cursor=self.alert_cursor,
            scheduled=None,
        )
        self.alert_cursor = found.cursor
        return found

    def statuses(self) -> dict[str, str | None]:
        """Tile -> what Dagster shows."""
        names = list(self.place.watched.order())
        found = self.instance.get_status_by_partition(self.place.watched.key, names, self.place.watched.partitions_def) or {}
        return {name.partition("|")[2]: status and status.value for name, status in found.items()}

    def states(self) -> dict[str, UnitState]:
        """Unit's tile -> its state."""
        return {row.tile or "": row.state for row in self.project.ledger.units()}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Makes a stand, with ledger and Dagster's own storage on one kind of database; its instance is closed afterwards."""
    opened = []
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    ledger = f'\n[ledger]\nurl = "{url}"\n' if url else ""
    storage = {"storage": {"postgres": {"postgres_url": url}}} if url else {}

    def build(*, text: str = CONFIGURATION, **settings: Any) -> Stand:
        clock = Clock()
        project = make_project(tmp_path, clock=clock, text=text + ledger, **settings)
        context = dg.instance_for_test(temp_dir=str(tmp_path), overrides=storage)
        instance = context.__enter__()
        opened.append(context)
        return Stand(project, location(project), instance, clock)

    yield build
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A local HTTP receiver of alerts."""
    with receiving() as listening:
        yield listening


def repair(stand: Stand, name: str) -> None:
    """Make the units of a behaviour `...:name` succeed from now on."""
    (stand.project.store.root / "bytes" / f"{name}.repaired").touch()


def test_only_the_failed_partition_is_run_again_and_only_its_incomplete_unit(make: Any) -> None:
    """One red partition of a ranged run is asked for when its unit is due; the finished units of it are skipped."""
    stand = make(behaviours={(1, 0): "transient:source"})
    assert not stand.run().success
    assert stand.statuses() == {"p0000": "MATERIALIZED", "p0001": "FAILED", "p0002": "MATERIALIZED", "p0003": "MATERIALIZED"}
    early = stand.tick()
    assert not early.run_requests
    assert "not due yet" in early.skip_reason.skip_message
    repair(stand, "source")
    stand.clock.move(minutes=10)
    stand.tick()
    assert seen_partitions(stand.project)[1:] == [["w1|p0001"]]
    assert set(stand.statuses().values()) == {"MATERIALIZED"}
    run_id = stand.project.ledger.runs(limit=1)[0].run_id
    counts = stand.project.ledger.counts(run_id=run_id)
    assert (counts.processed, counts.skipped) == (1, 1)
    assert "nothing is due" in stand.tick().skip_reason.skip_message


def test_twenty_ticks_on_an_always_failing_unit(make: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded runs, then one dead letter, one alert, and no more runs; replayed after repair, the unit completes."""
    monkeypatch.setenv("TILEWRIGHT_ALERTS__URLS", receiver.url)
    stand = make(behaviours={(1, 0): "transient:source"})
    stand.run()
    for _ in range(20):
        stand.tick()
        stand.run_end()
        stand.alerts()
        stand.clock.move(minutes=20)
    assert len(stand.launched) == stand.project.config.retry.attempts_max - 1
    letters = list(stand.project.ledger.dead_letters())
    assert [letter.attempts for letter in letters] == [3]
    assert len(receiver.messages) == 1
    assert "Quarantined" in receiver.titles()[0]
    assert stand.statuses()["p0001"] == "MATERIALIZED"
    assert not open_dead_letters(stand.project, stand.place.watched).passed

    repair(stand, "source")
    stand.project.ledger.replay([letters[0].id], who="a person")
    stand.tick()
    assert set(stand.states().values()) == {UnitState.COMPLETE}
    stand.clock.move(hours=25)
    stand.alerts()
    assert len(receiver.messages) == 1
    assert open_dead_letters(stand.project, stand.place.watched).passed
    assert not stand.tick().run_requests


def test_runs_that_get_nowhere_end_with_an_alert(make: Any) -> None:
    """Credentials that are refused charge no unit: the runs are bounded all the same, and end in one standing alert."""
    stand = make(behaviours={(1, 0): "unfit:source"}, partitions=2)
    stand.project.batch()
    for _ in range(12):
        stand.tick()
        stand.clock.move(hours=7)
    assert len(stand.launched) == stand.project.config.retry.attempts_max
    assert list(stand.project.ledger.dead_letters()) == []
    facts = stand.project.ledger.due_alerts(now=stand.clock(), repeat_every=timedelta(days=1))
    assert [fact.title for fact in facts if fact.is_standing] == [
        f"{len({name for name, state in stand.statuses().items() if state != 'MATERIALIZED'})} partitions of {ASSET} "
        "are given up until someone launches them"
    ]
    repair(stand, "source")
    stand.run("w1|p0000", "w1|p0001")
    stand.tick()
    assert set(stand.states().values()) == {UnitState.COMPLETE}
    facts = stand.project.ledger.due_alerts(now=stand.clock() + timedelta(days=3), repeat_every=timedelta(days=1))
    assert [fact.title for fact in facts if fact.is_standing] == []


def test_a_lost_request_is_made_again(make: Any) -> None:
    """A request that Dagster never launched waits for its time-out and is then made under another key."""
    stand = make()
    stand.project.batch()
    first = stand.tick(launch=False)
    assert [request.tags["dagster/asset_partition_range_end"] for request in first.run_requests] == ["w1|p0003"]
    waiting = stand.tick(launch=False)
    assert not waiting.run_requests
    assert "asked for, run not there yet" in waiting.skip_reason.skip_message
    stand.clock.move(seconds=601)
    second = stand.tick()
    assert {request.run_key for request in second.run_requests}.isdisjoint(request.run_key for request in first.run_requests)
    assert set(stand.states().values()) == {UnitState.COMPLETE}


def test_a_cancelled_run_is_left_alone_until_something_is_new(make: Any) -> None:
    """Partitions of a run that a person cancelled are not asked for, also by a sensor whose cursor was reset, until replanned."""
    stand = make()
    stand.project.batch()
    ranged = {"dagster/asset_partition_range_start": "w1|p0000", "dagster/asset_partition_range_end": "w1|p0001"}
    run = stand.instance.create_run_for_job(stand.job(JOB), tags=ranged)
    assert not [
        name for request in stand.tick(launch=False).run_requests for name in (request.partition_key,) if name == "w1|p0000"
    ]
    stand.instance.report_run_canceled(run)
    for cursor in (stand.cursor, None):
        stand.cursor = cursor
        found = stand.tick(launch=False)
        assert not found.run_requests
        assert "cancelled" in found.skip_reason.skip_message
    stand.clock.move(days=2)
    stand.project.version = "2"
    stand.project.batch()
    stand.tick()
    assert ["w1|p0000", "w1|p0001", "w1|p0002", "w1|p0003"] in seen_partitions(stand.project)


def test_an_unmounted_store_stops_requests_and_heals_without_a_run_when_it_is_back(make: Any) -> None:
    """A settled window that a run without its store turned red is healed by events alone once the store is there again."""
    stand = make()
    assert stand.run().success
    root = stand.project.store.root
    hidden = root.with_name("elsewhere")
    root.rename(hidden)
    assert not stand.run().success
    assert set(stand.statuses().values()) == {"FAILED"}
    found = stand.tick()
    assert not found.run_requests
    assert not found.asset_events
    assert "is not the store the ledger remembers" in found.skip_reason.skip_message
    hidden.rename(root)
    healed = stand.tick()
    assert not healed.run_requests
    assert len(healed.asset_events) == 4
    assert set(stand.statuses().values()) == {"MATERIALIZED"}
    assert not stand.tick().asset_events


def test_healing_looks_at_the_outputs_first(make: Any) -> None:
    """A red partition whose output is gone is not shown as done: its unit is PENDING again and asked for."""
    stand = make()
    stand.run()
    hidden = stand.project.store.root.with_name("elsewhere")
    stand.project.store.root.rename(hidden)
    stand.run()
    hidden.rename(stand.project.config.store_dir)
    lost = next(row for row in stand.project.ledger.units() if row.partition == "w1|p0002")
    stand.project.store.remove(lost.output_uri)
    found = stand.tick()
    assert {event.partition for event in found.asset_events} == {"w1|p0000", "w1|p0001", "w1|p0003"}
    assert "PENDING again" in (found.skip_reason.skip_message if found.skip_reason else "")
    stand.tick()
    assert seen_partitions(stand.project)[-1] == ["w1|p0002"]
    assert stand.project.store.size(lost.output_uri) is not None


def test_empty_partitions_are_shown_as_done(make: Any) -> None:
    """A planned partition without units is settled: it turns green without a run."""
    stand = make(units_each=0)
    stand.project.batch()
    found = stand.tick()
    assert not found.run_requests
    assert set(stand.statuses().values()) == {"MATERIALIZED"}


def test_the_run_end_check_speaks_for_a_failed_run(make: Any) -> None:
    """After a red run an output that vanished is named by the run-end sensor, told once, done again, and agreed on."""
    stand = make(behaviours={(1, 0): "transient:source"})
    stand.run()
    lost = next(row for row in stand.project.ledger.units(state=UnitState.COMPLETE) if row.partition == "w1|p0002")
    stand.project.store.remove(lost.output_uri)
    (failed,) = stand.run_end()
    assert not failed.passed
    assert lost.output_uri in str(failed.description)
    assert failed.metadata["planned"].value == 8
    assert failed.metadata["returned_to_pending"].value == 1
    assert stand.states()[lost.tile or ""] is UnitState.PENDING
    assert stand.run_end() == []
    repair(stand, "source")
    stand.clock.move(minutes=10)
    stand.tick()
    assert stand.project.store.size(lost.output_uri) == lost.output_size
    assert set(stand.states().values()) == {UnitState.COMPLETE}
    stand.alerts()
    facts = [row.title for row in stand.project.ledger.due_alerts(now=stand.clock(), repeat_every=timedelta(days=1))]
    assert facts == [f"{UNITS_CHECK} failed for {ASSET}"]


def test_a_cancelled_run_is_checked_too(make: Any) -> None:
    """A run that was cancelled evaluates nothing itself; the run-end sensor does, and it passes when nothing is amiss."""
    stand = make()
    run = stand.instance.create_run_for_job(
        stand.job(JOB), tags={"dagster/partition": "w1|p0001", "dagster/partition/batch_window": "w1"}
    )
    stand.project.batch()
    stand.instance.report_run_canceled(run)
    (found,) = stand.run_end()
    assert found.passed
    assert found.metadata["planned"].value == 2


def test_a_green_run_is_not_checked_twice(make: Any) -> None:
    """A run whose own blocking check ran is left alone: what that found, it has amended, and a second look would hide it."""
    stand = make()
    result = stand.run()
    assert {item.check_name for item in result.get_asset_check_evaluations()} == {UNITS_CHECK, LETTERS_CHECK}
    assert stand.run_end() == []


def test_the_check_job_names_a_planted_discrepancy(make: Any) -> None:
    """The check-only job computes nothing, names what is missing and what nobody recorded, and fails."""
    stand = make()
    stand.run()
    rows = list(stand.project.ledger.units())
    stand.project.store.remove(rows[0].output_uri)
    stray = rows[3].output_uri.replace(rows[3].key[:16], "0" * 16)
    stand.project.store.path(stray).write_bytes(b"whose is this")
    result = stand.job(CHECKS_JOB).execute_in_process(instance=stand.instance, raise_on_error=False)
    found = {item.check_name: item for item in result.get_asset_check_evaluations()}[UNITS_CHECK]
    assert not found.passed
    records = [dict(record.data) for record in found.metadata["discrepancies"].records]
    assert sorted((record["kind"], record["output"]) for record in records) == [
        ("output_missing", rows[0].output_uri),
        ("output_unrecorded", stray),
    ]
    assert stand.project.store.size(stray) is None
    aside = [name for name in os.listdir(stand.project.store.path(stray).parent) if name.startswith(".aside-")]
    assert len(aside) == 1


def test_standing_checks_are_told_when_they_change_or_are_hidden(make: Any) -> None:
    """A standing check is said once, again when it changed, and again when a later materialization hides it in the UI."""
    stand = make(behaviours={(0, 0): "reject"})
    watched = stand.place.watched
    told = Telling()

    def evaluated() -> int:
        nonlocal told
        evaluations, told = Telling.parse(told.dump()).tell(stand.instance, [open_dead_letters(stand.project, watched)])
        return len(evaluations)

    assert (evaluated(), evaluated()) == (1, 0)
    stand.run()
    assert (evaluated(), evaluated()) == (1, 0)
    stand.instance.report_runless_asset_event(dg.AssetMaterialization(watched.key, partition="w1|p0001"))
    assert (evaluated(), evaluated()) == (1, 0)


def test_a_dead_run_is_reported_once_its_heartbeat_is_old(make: Any) -> None:
    """A run shown STARTED whose lease is free and whose process is gone is reported failed, said, and asked for again."""
    stand = make()
    stand.project.batch()
    run = stand.instance.create_run_for_job(stand.job(JOB), tags={"dagster/partition": "w1|p0001"})
    stand.instance.report_dagster_event(
        dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, JOB, message="started"), run_id=run.run_id
    )
    now = datetime.now(UTC)
    row = RunRow(run.run_id, ASSET, ("w1|p0001",), pid=2**22 - 1, host=os.uname().nodename, boot_id="gone", started_at=now)
    stand.project.ledger.begin_run(row)
    assert report_dead_runs(stand.instance, stand.project, now=now + timedelta(seconds=299)) == []
    found = stand.tick(launch=False)
    assert {request.partition_key or request.tags["dagster/asset_partition_range_end"] for request in found.run_requests} == {
        "w1|p0000",
        "w1|p0003",
    }
    (said,) = report_dead_runs(stand.instance, stand.project, now=now + timedelta(seconds=301))
    assert run.run_id[:8] in said
    ended = stand.instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE
    assert report_dead_runs(stand.instance, stand.project, now=now + timedelta(seconds=400)) == []
    assert [request.partition_key for request in stand.tick().run_requests] == ["w1|p0001"]


def test_a_run_that_holds_its_lease_is_never_called_dead(make: Any) -> None:
    """However old its heartbeat, a run whose lease is held is alive."""
    stand = make()
    stand.project.batch()
    run = stand.instance.create_run_for_job(stand.job(JOB), tags={"dagster/partition": "w1|p0001"})
    stand.instance.report_dagster_event(
        dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, JOB, message="started"), run_id=run.run_id
    )
    ledger = stand.project.ledger
    now = datetime.now(UTC)
    ledger.begin_run(RunRow(run.run_id, ASSET, ("w1|p0001",), pid=2**22 - 1, host="x", boot_id="gone", started_at=now))
    ids = ledger.partition_ids(ASSET, ["w1|p0001"])
    with stand.project.leases.hold(ids):
        ledger.note_holder(list(ids.values()), run_id=run.run_id, pid=1, host="x")
        assert report_dead_runs(stand.instance, stand.project, now=now + timedelta(days=1)) == []
    assert len(report_dead_runs(stand.instance, stand.project, now=now + timedelta(days=1))) == 1


def test_each_way_to_launch_in_process_sees_its_partitions(make: Any) -> None:
    """A single partition, a range, and the requests of the sensor each reach the asset with all their keys."""
    stand = make()
    stand.run("w1|p0001", "w1|p0002")
    stand.job(JOB).execute_in_process(instance=stand.instance, partition_key="w1|p0000")
    stand.tick()
    assert seen_partitions(stand.project) == [["w1|p0001", "w1|p0002"], ["w1|p0000"], ["w1|p0003"]]
