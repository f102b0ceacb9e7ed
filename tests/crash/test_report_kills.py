"""Runs of reports killed at every named point and at random moments: one record for a unit, one past one for a correction."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from assets.inspections.shape import MANIFEST, RECORDS
from resources.crashpoints import POINTS
from resources.reconciliation import reconcile
from resources.sweep import sweep_staging
from resources.units import AttemptOutcome, UnitState
from tests.support.report_child import start
from tests.support.report_projects import WINDOW, ReportProject, report_bytes

SITES = tuple(f"S{number}" for number in range(6))
CORRECTED, LATE = SITES[:3], ("L0", "L1", "L2")
WORKER_POINTS = ("stage.open", "stage.written", "stage.synced", "validate.done")
NEVER_REACHED = ("source.read", "stage.part")
MAIN_POINTS = tuple(point for point in POINTS if point not in (*WORKER_POINTS, *NEVER_REACHED))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def reports(request: pytest.FixtureRequest, tmp_path: Path) -> ReportProject:
    """A project on each database with six records, three corrected reports and three new ones."""
    made = ReportProject(tmp_path / "project")
    if request.param == "postgres":
        made.configure(extra=f'\n[ledger]\nurl = "{request.getfixturevalue("postgres_url")}"\n')
    listed = [(site, made.put(f"{site}.pdf", report_bytes(site))) for site in SITES]
    made.list_reports(listed)
    assert made.run().summary.processed == len(SITES)
    for site in CORRECTED:
        path = made.files / f"{site}.pdf"
        path.write_bytes(report_bytes(site, condition="poor"))
        os.utime(path, ns=(1, 1))
    made.list_reports([*listed, *((site, made.put(f"{site}.pdf", report_bytes(site))) for site in LATE)])
    return made


def finish(reports: ReportProject, run_id: str, faults: str = "") -> tuple[int, dict[str, object]]:
    """Run a child to its end."""
    child = start(reports.folder / "tilewright.toml", run_id, faults=faults)
    out, err = child.communicate(timeout=120)
    return child.returncode, json.loads(out) if child.returncode == 0 else {"err": err}


def assert_invariants(reports: ReportProject) -> None:
    """Whatever happened: a COMPLETE unit has its record with its revision, and nobody has two."""
    ledger = reports.project.ledger
    records = {record.unit_key: record for record in ledger.records()}
    assert len(records) == len(list(ledger.records()))
    assert max(Counter((record.site, record.period) for record in records.values()).values()) == 1
    for row in reports.rows(UnitState.COMPLETE):
        assert records[row.key].revision == row.revision
    for row in reports.rows():
        won = [entry for entry in ledger.history(row.key) if entry.outcome is AttemptOutcome.SUCCEEDED]
        assert len({entry.round for entry in won}) == len(won), f"{row.key} succeeded twice in one round"


def assert_converged(reports: ReportProject) -> None:
    """Nine records, the three corrections in the history once, what was observed is what is recorded, nothing left to do."""
    assert_invariants(reports)
    project = reports.project
    assert {row.state for row in reports.rows()} == {UnitState.COMPLETE}
    records = {record.site: record for record in reports.records()}
    assert set(records) == {*SITES, *LATE}
    for site, record in records.items():
        assert record.fields["condition"] == ("poor" if site in CORRECTED else "good")
        past = project.ledger.record_history(record.unit_key)
        assert [one.fields["condition"] for one in past] == (["good"] if site in CORRECTED else [])
    contents = {f"file:///{record.source_uri}": record.content_digest for record in records.values()}
    assert {name: one.digest for name, one in project.ledger.observations(contents).items()} == contents
    for asset in (RECORDS, MANIFEST):
        found = reconcile(project.ledger, project.store, asset=asset, partitions=[WINDOW], deep=True)
        assert found.agrees, found.discrepancies
    list(sweep_staging(project.ledger, project.store, living_runs=[], older_than_s=-1, dry_run=False))
    assert not list(project.store.staged_files())
    before = reports.snapshot()
    again = reports.run().summary
    assert (again.processed, again.skipped) == (0, len(records))
    assert reports.snapshot() == before


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", MAIN_POINTS)
def test_run_of_reports_killed(reports: ReportProject, point: str, hit: int) -> None:
    """The run dies at a point, in its list of reports or among its records; the next run does the rest, once."""
    code, _ = finish(reports, "killed", f"{point}=kill@{hit}")
    assert code in (-signal.SIGKILL, 0)
    assert code or (point, hit) in ONCE, "the crash test did not crash"
    assert_invariants(reports)
    code, outcome = finish(reports, "next")
    assert (code, outcome.get("outcome")) == (0, "complete"), outcome
    assert_converged(reports)
    assert all(row.attempts <= 1 for row in reports.rows()), "a crash of the run was charged to a report"


ONCE = {("record.rows", 2)}
"""Points that a run of a few reports may reach once only: rows are written in groups."""


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_worker_of_a_report_killed(reports: ReportProject, point: str) -> None:
    """A worker that dies with a report takes nothing with it: the same run does it again."""
    code, outcome = finish(reports, "killed", f"{point}=kill*2@3")
    assert (code, outcome.get("outcome")) == (0, "complete"), outcome
    assert_converged(reports)


def test_two_runs_of_the_same_reports(reports: ReportProject) -> None:
    """Two runs that do not see each other's leases leave one record and one correction for each report."""
    children = [start(reports.folder / "tilewright.toml", f"run{number}", own_leases=True) for number in range(2)]
    for child in children:
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
    assert_invariants(reports)
    assert finish(reports, "after")[0] == 0
    assert_converged(reports)


@pytest.mark.slow
def test_reports_killed_at_random_moments(reports: ReportProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed again and again at random moments, the window still ends with one record for each report."""
    # a report that runs alone when its run is killed is charged: so many kills would rightly quarantine it
    monkeypatch.setenv("TILEWRIGHT_RETRY__ATTEMPTS_MAX", "100")
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    kills = 0
    for number in range(8):
        child = start(reports.folder / "tilewright.toml", f"run{number}")
        try:
            child.communicate(timeout=0.7 + rng.random() * 1.5)
            break
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            kills += 1
        assert_invariants(reports)
    assert kills, f"the crash test did not crash (seed {seed})"
    code, outcome = finish(reports, "last")
    assert (code, outcome.get("outcome")) == (0, "complete"), (seed, outcome)
    assert_converged(reports)
