"""Inspections through Dagster: arrivals, the window's run and its checks, what follows, the sensor of failures, hourly replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import dagster as dg
import pytest

from assets.inspections.shape import MANIFEST, PAGE, RECORDS, TABLE
from assets.inspections.table import list_uri, table_uri
from pipelines.arrivals_sensor import arrivals_tick
from pipelines.definitions import build_defs, parts_of
from pipelines.findings import UNITS_CHECK, overdue_dead_letters
from pipelines.reconciling_sensors import tick
from resources.units import UnitState
from tests.support.faulty_http import FaultyHttp, faulty_http, ok, status
from tests.support.report_projects import WINDOW, ReportProject, report_bytes

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in beta", "ignore:.*is currently in preview")
OTHER = "2026-02"


@dataclass
class Stand:
    """A project of inspections with its definitions, instance and server."""

    made: ReportProject
    instance: dg.DagsterInstance
    server: FaultyHttp
    arrivals_cursor: str | None = None

    @property
    def definitions(self) -> dg.Definitions:
        return build_defs(project=self.made.project)

    def job(self, name: str, partition: str | None = WINDOW, **tags: str) -> dg.ExecuteInProcessResult:
        """One run of a job."""
        found = self.definitions.resolve_job_def(name)
        return found.execute_in_process(instance=self.instance, partition_key=partition, tags=tags, raise_on_error=False)

    def window(self, window: str = WINDOW) -> list[dg.ExecuteInProcessResult]:
        """All that a window's runs do."""
        return [self.job(name, window) for name in ("window_manifest", "window_records", "window_outputs")]

    def numbers(self) -> dict[str, tuple[int, ...]]:
        """Processed, skipped and quarantined, as the last materialization of each asset tells them."""
        found = {}
        for name in (RECORDS, TABLE, PAGE):
            event = self.instance.get_latest_materialization_event(dg.AssetKey([name]))
            if event is None or event.asset_materialization is None:
                continue
            told = event.asset_materialization.metadata
            found[name] = tuple(int(str(told[key].value)) for key in ("run_processed", "run_skipped", "quarantined"))
        return found

    def arrive(self) -> list[str]:
        """One tick of the arrivals sensor; the windows it wakes."""
        watched = parts_of(self.made.project).watched
        found = arrivals_tick(self.instance, self.made.project, watched.units, watched.manifest, cursor=self.arrivals_cursor)
        self.arrivals_cursor = found.cursor
        return [request.tags["tilewright/batch_window"] for request in found.run_requests or ()]

    def due(self) -> list[str | None]:
        """One tick of the failed-partition sensor; the partitions it asks for."""
        found = tick(self.instance, self.made.project, parts_of(self.made.project).watched.units, cursor=None)
        return [request.partition_key for request in found.run_requests or ()]

    def serve(self, site: str, content: bytes) -> str:
        """Serve a report with an ETag that follows from its content."""
        return self.server.route(f"/{site}.pdf", ok(content, ETag=f'"{sha256(content).hexdigest()[:12]}"'))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A project without reports yet."""
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance, faulty_http() as server:
        yield Stand(ReportProject(tmp_path / "project"), instance, server)


def test_listed_reports_wake_their_window_and_a_second_pass_does_nothing(stand: Stand) -> None:
    """Reports in, list, records, table and page out, all checks pass; again: processed 0, no body, no byte, no row."""
    stand.made.list_reports([(site, stand.serve(site, report_bytes(site))) for site in ("A", "B", "C")])
    assert stand.arrive() == [WINDOW]
    results = stand.window()
    assert all(result.success for result in results)
    checks = [item for result in results for item in result.get_asset_check_evaluations() if item.check_name == UNITS_CHECK]
    assert {item.asset_key.to_user_string() for item in checks} == {MANIFEST, RECORDS, TABLE, PAGE}
    assert all(item.passed for item in checks)
    assert stand.numbers() == {RECORDS: (3, 0, 0), TABLE: (1, 0, 0), PAGE: (1, 0, 0)}
    assert stand.arrive() == []
    before, bodies = stand.made.snapshot(), stand.server.count("GET")
    assert {list_uri(WINDOW), table_uri(WINDOW)} <= set(before[1])
    assert all(result.success for result in stand.window())
    assert stand.numbers() == {RECORDS: (0, 3, 0), TABLE: (0, 1, 0), PAGE: (0, 1, 0)}
    assert stand.made.snapshot() == before
    assert stand.server.count("GET") == bodies


def test_a_corrected_report_wakes_its_window(stand: Stand) -> None:
    """The arrivals sensor asks for tokens: a corrected report wakes its window once, and one whose source is down wakes none."""
    stand.made.list_reports([("A", stand.serve("A", report_bytes("A"))), ("B", stand.serve("B", report_bytes("B")))])
    stand.arrive()
    stand.window()
    assert stand.arrive() == []
    stand.server.route("/B.pdf", status(503))
    assert stand.arrive() == []
    stand.serve("A", report_bytes("A", condition="poor"))
    assert stand.arrive() == [WINDOW]
    assert all(result.success for result in stand.window())
    assert stand.numbers()[RECORDS] == (1, 1, 0)
    assert stand.arrive() == []
    assert [record.fields["condition"] for record in stand.made.records() if record.site == "A"] == ["poor"]


def test_only_windows_with_work_left_are_asked_for(stand: Stand) -> None:
    """A host that fails leaves its window red; the sensor asks for that one alone, and it is done when the host is well."""
    stand.made.configure(("attempts_max = 2", "attempts_max = 9"))
    stand.made.list_reports([("A", stand.server.route("/A.pdf", status(503)))])
    stand.made.list_reports([("A", stand.serve("later", report_bytes("A", period=OTHER)))], window=OTHER, period=OTHER)
    assert not stand.job("window_records").success
    assert stand.job("window_records", OTHER).success
    assert stand.due() == [WINDOW]
    stand.serve("A", report_bytes("A"))
    assert stand.job("window_records").success
    assert stand.due() == []


def test_hourly_replay_asks_again_for_what_is_exhausted_or_mended(stand: Stand) -> None:
    """Exhausted retries are PENDING again; of rejected reports the mended one is, and the one that is as it was is left alone."""
    exhausted = stand.server.route("/exhausted.pdf", status(503))
    rejected = {site: stand.serve(site, b"no report") for site in ("mended", "same")}
    stand.made.list_reports([("exhausted", exhausted), *rejected.items()])
    for _ in range(2):
        stand.job("window_records")
    assert {row.state for row in stand.made.rows()} == {UnitState.QUARANTINED}
    stand.serve("mended", report_bytes("mended"))
    stand.serve("exhausted", report_bytes("exhausted"))
    assert stand.job("replay_exhausted_retries", None).success
    states = {site: row.state for site, row in stand.made.by_site().items()}
    assert states == {"exhausted": UnitState.PENDING, "mended": UnitState.PENDING, "same": UnitState.QUARANTINED}
    assert stand.due() == [WINDOW]
    bodies = stand.server.count("GET", "/same.pdf")
    assert stand.job("window_records").success
    assert stand.numbers()[RECORDS] == (2, 0, 1)
    assert stand.server.count("GET", "/same.pdf") == bodies


def test_a_dead_letter_past_its_deadline_fails_a_check(stand: Stand) -> None:
    """`no_overdue_dead_letter` names the report that nobody looked after in time."""
    stand.made.configure(extra="\n[alerts]\nletter_deadline_hours = 48\n")
    stand.made.list_reports([("A", stand.serve("A", b"no report"))])
    stand.job("window_records")
    project, units = stand.made.project, parts_of(stand.made.project).watched.units
    assert overdue_dead_letters(project, units, deadline=timedelta(hours=48)).passed
    late = overdue_dead_letters(project, units, deadline=timedelta(seconds=-1))
    assert not late.passed
    assert "1 dead letters" in late.description
    assert stand.definitions.resolve_job_def("standing_checks").execute_in_process(instance=stand.instance).success


def test_hourly_replay_is_on_in_this_pipeline(stand: Stand) -> None:
    """It is the one schedule that runs unasked."""
    schedules = {schedule.name: schedule for schedule in stand.definitions.get_repository_def().schedule_defs}
    running = {name for name, found in schedules.items() if found.default_status is dg.DefaultScheduleStatus.RUNNING}
    assert running == {"hourly_replay"}
    assert schedules["hourly_replay"].cron_schedule == "7 * * * *"
