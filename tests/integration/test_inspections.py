"""Inspection reports through the engine: what is fetched, recorded, skipped, replaced, set aside, and what a bad source does."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from assets.forecast import forecast
from assets.inspections.listing import (
    BAD_ROW,
    BAD_TABLE,
    CONFLICT,
    IN_FUTURE,
    LISTED_ELSEWHERE,
    LISTED_TWICE,
    NO_REPORT,
    UNKNOWN_WINDOW,
)
from assets.inspections.page import page_batch, page_uri
from assets.inspections.shape import RECORDS
from assets.inspections.survey import KEPT
from assets.inspections.table import table_batch, table_uri
from pipelines.replaying import replay_exhausted
from resources.errors import EnvironmentUnfit, ErrorKind
from resources.ledger import LetterStatus
from resources.units import RunOutcome, UnitState
from tests.support.faulty_http import FaultyHttp, faulty_http, no_head, ok, reset, silent, status, unavailable
from tests.support.report_projects import WINDOW, ReportProject, report_bytes

COMPLETE, QUARANTINED, FAILED, PENDING = UnitState.COMPLETE, UnitState.QUARANTINED, UnitState.FAILED, UnitState.PENDING


@pytest.fixture
def reports(tmp_path: Path) -> ReportProject:
    """A project without reports yet."""
    return ReportProject(tmp_path / "project")


@pytest.fixture
def server() -> Iterator[FaultyHttp]:
    """A server without reports yet."""
    with faulty_http() as found:
        yield found


def serve(server: FaultyHttp, site: str, *, condition: str = "good", content: bytes | None = None) -> str:
    """Serve a report with an ETag that follows from its content."""
    found = report_bytes(site, condition=condition) if content is None else content
    return server.route(f"/{site}.pdf", ok(found, ETag=f'"{sha256(found).hexdigest()[:12]}"'))


def states(reports: ReportProject, window: str = WINDOW) -> dict[str, UnitState]:
    """State of each site's unit."""
    return {site: row.state for site, row in reports.by_site(window).items()}


def left_out(reports: ReportProject) -> dict[str, list[str]]:
    """Names of what the survey leaves out, by verdict."""
    found: dict[str, list[str]] = {}
    for one in reports.project.survey(now=reports.project.ledger.clock()).left_out:
        found.setdefault(one.verdict, []).append(one.name)
    return found


def test_each_report_becomes_one_record_and_a_second_run_takes_no_content(reports: ReportProject, server: FaultyHttp) -> None:
    """Each record says address, digest, page count, version and key; again: processed 0, all skipped, no body, byte or row."""
    contents = {site: report_bytes(site) for site in ("A", "B", "C")}
    listed = [(site, serve(server, site)) for site in ("A", "B")]
    reports.list_reports([*listed, ("C", reports.put("C.pdf", contents["C"]))])
    first = reports.run()
    assert (first.summary.processed, first.summary.outcome) == (3, RunOutcome.COMPLETE)
    records = reports.records(WINDOW)
    assert [(one.site, one.period) for one in records] == [("A", "2026-01"), ("B", "2026-01"), ("C", "2026-01")]
    assert {one.unit_key for one in records} == {row.key for row in reports.rows(COMPLETE)}
    assert [one.content_digest for one in records] == [sha256(contents[site]).hexdigest() for site in ("A", "B", "C")]
    assert all(one.page_count and one.extraction_version and one.source_uri for one in records)
    assert {site: row.revision for site, row in reports.by_site().items()} == {one.site: one.revision for one in records}
    before, bodies = reports.snapshot(), server.count("GET")
    for _ in range(2):
        again = reports.run()
        assert (again.summary.processed, again.summary.skipped) == (0, 3)
        assert reports.snapshot() == before
        assert server.count("GET") == bodies
    assert all(not reports.project.ledger.record_history(one.unit_key) for one in records)


def test_a_corrected_report_takes_the_place_of_the_one_before(reports: ReportProject, server: FaultyHttp) -> None:
    """Under the same address another token is fetched, its record replaces the old one, and that is kept in the history."""
    listed = [("A", serve(server, "A")), ("B", serve(server, "B"))]
    reports.list_reports(listed)
    reports.run()
    (old, kept) = reports.records()
    serve(server, "A", condition="poor")
    assert reports.run().summary.processed == 1
    (new, still) = reports.records()
    assert new.content_digest != old.content_digest
    assert still == kept
    (past,) = reports.project.ledger.record_history(new.unit_key)
    assert (past.content_digest, past.revision, past.why) == (old.content_digest, old.revision, "replaced")
    assert reports.run().summary.processed == 0


def test_a_touched_file_with_equal_content_changes_no_row(reports: ReportProject) -> None:
    """A new token with the old content costs one look at it; record, time of the record and history stay."""
    address = reports.put("A.pdf", report_bytes("A"))
    reports.list_reports([("A", address)])
    reports.run()
    before = reports.records()
    Path(address).touch()
    assert reports.run().summary.processed == 1
    assert reports.records() == before
    assert reports.project.ledger.record_history(before[0].unit_key) == []
    assert reports.run().summary.processed == 0


def test_keep_leaves_the_first_record_and_names_the_change(reports: ReportProject, server: FaultyHttp) -> None:
    """With same_uri = "keep" a corrected report changes nothing and is named by the check of what is left out."""
    reports.configure(("settle_s = 0", 'settle_s = 0\nsame_uri = "keep"'))
    reports.list_reports([("A", serve(server, "A"))])
    reports.run()
    before = reports.records()
    serve(server, "A", condition="poor")
    assert reports.run().summary.processed == 0
    assert reports.records() == before
    assert [name.rpartition("/")[2] for name in left_out(reports)[KEPT]] == ["A.pdf"]


def test_keep_reads_no_other_content_when_rules_change(reports: ReportProject, server: FaultyHttp) -> None:
    """Under "keep", other rules ask for the content again; another one is a dead letter that says so, and the record stands."""
    keep = ("settle_s = 0", 'settle_s = 0\nsame_uri = "keep"')
    reports.configure(keep)
    reports.list_reports([("A", server.route("/A.pdf", ok(report_bytes("A"))))])
    reports.run()
    before = reports.records()
    server.route("/A.pdf", ok(report_bytes("A", condition="poor")))
    reports.configure(keep, ('label = "condition"', 'label = "(?:overall )?condition"'))
    reports.run()
    assert states(reports) == {"A": QUARANTINED}
    assert [letter.kind for letter in reports.project.ledger.dead_letters()] == [ErrorKind.CONTRACT_VIOLATED]
    assert reports.records() == before


def test_a_second_report_for_a_pair_is_a_visible_conflict(reports: ReportProject, server: FaultyHttp) -> None:
    """One of two reports for one site and period has the record, the other is a dead letter, and both are named."""
    first = serve(server, "A")
    second = server.route("/other.pdf", ok(report_bytes("A", condition="poor"), ETag='"2"'))
    reports.list_reports([("A", first), ("A", second)])
    assert reports.run().summary.outcome is RunOutcome.COMPLETE_WITH_QUARANTINE
    assert sorted(row.state for row in reports.rows()) == [COMPLETE, QUARANTINED]
    (letter,) = reports.project.ledger.dead_letters()
    assert letter.kind == ErrorKind.DUPLICATE_KEY
    assert len(reports.records()) == 1
    assert sorted(left_out(reports)[CONFLICT]) == sorted([first, second])


def test_one_period_in_three_spellings_has_one_record(reports: ReportProject) -> None:
    """However a period is spelled, one of its site's reports has the record, and the others are dead letters and named."""
    reports.configure(extra='\n[extraction]\nperiod_label = ""\n')
    listed = [(reports.put(f"{name}.pdf", report_bytes("A", condition=name)), name) for name in ("2026-Q2", "Q2 2026", "2026-q2")]
    rows = "".join(f"A,{address},{period}\n" for address, period in listed)
    (reports.lists / f"{WINDOW}.csv").write_text(f"site,uri,period\n{rows}")
    summary = reports.run().summary
    assert (summary.processed, summary.quarantined) == (1, 2)
    assert [(one.site, one.period) for one in reports.records()] == [("A", "2026-Q2")]
    assert [letter.kind for letter in reports.project.ledger.dead_letters()] == [ErrorKind.DUPLICATE_KEY] * 2
    assert len(left_out(reports)[CONFLICT]) == 3


def test_records_of_a_raw_spelling_are_made_anew_once(reports: ReportProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records were made for periods as spelled, the next run makes one for the period's form, and keeps the old ones."""
    reports.configure(extra='\n[extraction]\nperiod_label = ""\n')
    listed = [(reports.put(f"{name}.pdf", report_bytes("A", condition=name)), name) for name in ("q1 2026", "Q1 2026")]
    rows = "".join(f"A,{address},{period}\n" for address, period in listed)
    (reports.lists / f"{WINDOW}.csv").write_text(f"site,uri,period\n{rows}")
    with monkeypatch.context() as patched:
        patched.setattr("assets.inspections.listing.normal_period", lambda text, **_: text)
        assert reports.run().summary.processed == 2
    before = {one.unit_key: one.period for one in reports.records()}
    assert set(before.values()) == {"q1 2026", "Q1 2026"}
    summary = reports.run().summary
    assert (summary.processed, summary.quarantined) == (1, 1)
    (winner,), (loser,) = reports.rows(COMPLETE), reports.rows(QUARANTINED)
    assert (winner.output_uri, loser.error_kind) == ("row:inspection_records/A/2026-Q1", ErrorKind.DUPLICATE_KEY)
    (past,) = reports.project.ledger.record_history(winner.key)
    assert (past.period, past.why) == (before[winner.key], "replaced")
    reports.project.engine(inline=True).run(table_batch(reports.project, [WINDOW], reports.rows()), run_id="table")
    found = pq.read_table(reports.project.store.path(table_uri(WINDOW))).to_pylist()
    assert {row["period"]: row["is_current"] for row in found} == {"2026-Q1": True, before[loser.key]: False}
    assert reports.run().summary.processed == 0


def test_equal_content_under_two_addresses_is_told_and_not_doubled(reports: ReportProject, server: FaultyHttp) -> None:
    """Two sites with the same bytes have one record each; the table and the page name the other address."""
    reports.configure(extra='\n[extraction]\nsite_label = ""\n')
    content = report_bytes("A")
    addresses = [serve(server, site, content=content) for site in ("A", "B")]
    reports.list_reports([("A", addresses[0]), ("B", addresses[1])])
    reports.run()
    engine = reports.project.engine(inline=True)
    engine.run(table_batch(reports.project, [WINDOW], reports.rows()), run_id="table")
    engine.run(page_batch(reports.project, [WINDOW], reports.rows()), run_id="page")
    rows = pq.read_table(reports.project.store.path(table_uri(WINDOW))).to_pylist()
    assert [(row["site"], row["same_content_as"]) for row in rows] == [("A", [addresses[1]]), ("B", [addresses[0]])]
    assert all(row["is_current"] for row in rows)
    assert "Equal content under several addresses" in reports.project.store.path(page_uri(WINDOW)).read_text()


def test_one_host_that_fails_stops_no_other(reports: ReportProject, server: FaultyHttp) -> None:
    """503, a reset, silence, 404 and a body that is no report: each has its verdict, and the others have their records."""
    listed = {
        "busy": server.route("/busy.pdf", unavailable(1, ok(report_bytes("busy"), ETag='"1"'), retry_after=None)),
        "down": server.route("/down.pdf", unavailable(99, ok(), retry_after=None)),
        "cut": server.route("/cut.pdf", reset()),
        "mute": server.route("/mute.pdf", silent()),
        "gone": server.route("/gone.pdf", status(404)),
        "odd": server.route("/odd.pdf", ok(b"<html>", ETag='"1"')),
    }
    with faulty_http() as other:
        reports.configure(("[retry]", "[retry]\nbreaker_units = 50"))
        reports.list_reports([*listed.items(), ("fine", serve(other, "fine"))])
        reports.run()
        assert states(reports)["fine"] is COMPLETE
        reports.run()
    found = states(reports)
    assert found == {
        "busy": COMPLETE, "fine": COMPLETE,
        "down": QUARANTINED, "cut": QUARANTINED, "mute": QUARANTINED, "gone": QUARANTINED, "odd": QUARANTINED,
    }  # fmt: skip
    kinds = {site: row.error_kind for site, row in reports.by_site().items()}
    assert kinds["gone"] == ErrorKind.NOT_FOUND
    assert kinds["mute"] == ErrorKind.TIMEOUT
    assert kinds["down"] == kinds["cut"] == ErrorKind.SOURCE_UNAVAILABLE


def test_refused_credentials_stop_the_run_and_charge_nothing(reports: ReportProject, server: FaultyHttp) -> None:
    """Status 401 is for a person: the run stops, no unit is set aside, and it goes on when the credentials are mended."""
    reports.list_reports([("A", server.route("/A.pdf", status(401)))])
    report = reports.run()
    assert report.stopped_by is not None
    assert report.stopped_by.kind is ErrorKind.CREDENTIALS_REFUSED
    assert [(row.state, row.attempts) for row in reports.rows()] == [(PENDING, 0)]
    serve(server, "A")
    assert reports.run().summary.outcome is RunOutcome.COMPLETE


def test_a_source_that_is_down_undoes_nothing(reports: ReportProject, server: FaultyHttp) -> None:
    """While no token is to be had, what is COMPLETE stays so and what is quarantined stays so, in any number of runs."""
    reports.list_reports([("A", serve(server, "A")), ("odd", serve(server, "odd", content=b"no report"))])
    reports.run()
    before = reports.records()
    server.route("/A.pdf", status(503))
    server.route("/odd.pdf", status(503))
    for _ in range(2):
        summary = reports.run().summary
        assert (summary.processed, summary.skipped, summary.quarantined) == (0, 1, 1)
    assert reports.records() == before
    serve(server, "A")
    assert reports.run().summary.processed == 0


def test_a_server_without_tokens_is_asked_for_content_once(reports: ReportProject, server: FaultyHttp) -> None:
    """Without ETag and Last-Modified, or without HEAD, a report is taken once, and again only when the rules change."""
    plain = server.route("/plain.pdf", ok(report_bytes("plain")))
    headless = server.route("/headless.pdf", no_head(ok(report_bytes("headless"), ETag='"1"')))
    reports.list_reports([("plain", plain), ("headless", headless)])
    assert reports.run().summary.processed == 2
    bodies = server.count("GET")
    assert reports.run().summary.skipped == 2
    assert server.count("GET") == bodies
    reports.change_rules()
    assert reports.run().summary.processed == 2


def test_a_server_with_other_tokens_for_the_head_is_not_asked_again(reports: ReportProject, server: FaultyHttp) -> None:
    """What a plan asks for is the head: its token counts, whatever the answer with the content says."""
    content = report_bytes("A")

    def answer(request: object) -> None:
        command = getattr(request, "command", "")
        ok(content, ETag=f'"{command}"')(request)  # type: ignore[arg-type]

    reports.list_reports([("A", server.route("/A.pdf", answer))])
    assert reports.run().summary.processed == 1
    assert reports.run().summary.skipped == 1
    assert server.count("GET") == 1


def test_changed_rules_do_every_report_again(reports: ReportProject, server: FaultyHttp) -> None:
    """Other rules are another revision: all are read again; what the new rules refuse keeps its record, not as current."""
    reports.list_reports([("A", serve(server, "A"))])
    reports.run()
    (before,) = reports.records()
    reports.change_rules(is_refusing=True)
    assert reports.run().summary.quarantined == 1
    assert reports.records() == [before]
    reports.project.engine(inline=True).run(table_batch(reports.project, [WINDOW], reports.rows()), run_id="table")
    (row,) = pq.read_table(reports.project.store.path(table_uri(WINDOW))).to_pylist()
    assert (row["revision"], row["is_current"]) == (before.revision, False)
    reports.configure()
    assert reports.run().summary.outcome is RunOutcome.COMPLETE
    assert reports.records() == [before]


def test_a_rejected_report_returns_by_itself_when_it_is_mended(reports: ReportProject, server: FaultyHttp) -> None:
    """Its dead letter is superseded and it is PENDING as soon as its window is planned; the same content is not read again."""
    reports.list_reports([("A", serve(server, "A", content=b"no report"))])
    reports.run()
    (letter,) = reports.project.ledger.dead_letters()
    assert reports.run().summary.quarantined == 1
    assert [one.id for one in reports.project.ledger.dead_letters()] == [letter.id]
    assert server.count("GET") == 1
    serve(server, "A")
    reports.project.plan_again([WINDOW], run_id="again")
    assert states(reports) == {"A": PENDING}
    (closed,) = reports.project.ledger.dead_letters(status=None)
    assert (closed.id, closed.status) == (letter.id, LetterStatus.SUPERSEDED)
    assert reports.run().summary.processed == 1


@pytest.mark.parametrize("is_web", [True, False])
def test_an_address_under_two_sites_is_read_once_for_each(reports: ReportProject, server: FaultyHttp, is_web: bool) -> None:
    """What another site's record tells of the content brings no rejected report back: neither token nor rules have changed."""
    address = serve(server, "A") if is_web else reports.put("A.pdf", report_bytes("A"))
    reports.list_reports([("A", address), ("B", address)])
    assert reports.run().summary.quarantined == 1
    assert states(reports) == {"A": COMPLETE, "B": QUARANTINED}
    (letter,) = reports.project.ledger.dead_letters()
    for number in range(2):
        reports.list_reports([("A", address), ("B", address), (f"new{number}", reports.put("no.pdf", b"no report"))])
        assert reports.run().summary.processed == 0
    assert [row.attempts for row in reports.rows(QUARANTINED)] == [1, 1]
    assert letter.id in {one.id for one in reports.project.ledger.dead_letters()}
    reports.change_rules()
    reports.run()
    assert states(reports)["B"] is QUARANTINED
    assert letter.id not in {one.id for one in reports.project.ledger.dead_letters()}


def test_replay_skips_what_succeeded_and_says_why_it_failed_again(reports: ReportProject, server: FaultyHttp) -> None:
    """Of two exhausted reports one is well again: it is recorded once; the other returns with its new reason."""
    reports.list_reports([(site, server.route(f"/{site}.pdf", unavailable(99, ok(), retry_after=None))) for site in ("A", "B")])
    for _ in range(2):
        reports.run()
    assert set(states(reports).values()) == {QUARANTINED}
    letters = {letter.subject_key: letter for letter in reports.project.ledger.dead_letters()}
    serve(server, "A")
    server.route("/B.pdf", status(404))
    assert replay_exhausted(reports.project, rounds_max=9) == 2
    reports.run()
    assert states(reports) == {"A": COMPLETE, "B": QUARANTINED}
    (open_letter,) = reports.project.ledger.dead_letters()
    assert open_letter.kind == ErrorKind.NOT_FOUND
    before = letters[open_letter.subject_key]
    assert (open_letter.audit_hash != before.audit_hash, open_letter.round) == (True, before.round + 1)
    (replayed, *_) = list(reports.project.ledger.dead_letters(status=LetterStatus.REPLAYED))
    assert replayed.reason in {letter.reason for letter in letters.values()}
    before_records = reports.records()
    assert replay_exhausted(reports.project, rounds_max=9) == 0
    assert reports.project.ledger.replay([one.id for one in letters.values()], who="a person") == 0
    assert reports.run().summary.skipped == 1
    assert reports.records() == before_records


def test_one_mistyped_folder_is_one_dead_letter(reports: ReportProject) -> None:
    """A row with a folder that is not there stops no other row of its window, and comes back when the row is mended."""
    good = reports.put("A.pdf", report_bytes("A"))
    reports.put("B.pdf", report_bytes("B"))
    reports.list_reports([("A", good), ("B", "reports/typo-folder/B.pdf"), ("C", "reprots/C.pdf")])
    summary = reports.run().summary
    assert (summary.outcome, summary.processed) == (RunOutcome.COMPLETE_WITH_QUARANTINE, 1)
    assert [letter.kind for letter in reports.project.ledger.dead_letters()] == [ErrorKind.NOT_FOUND] * 2
    reports.list_reports([("A", good), ("B", "reports/B.pdf")])
    assert reports.run().summary.outcome is RunOutcome.COMPLETE


def test_rows_that_cannot_be_used_are_named_and_stop_nothing(reports: ReportProject, server: FaultyHttp) -> None:
    """Each bad row says file, line, field, found and allowed; the good ones of the same table are done."""
    fine = serve(server, "A")
    rows = [
        "site;uri;period",
        f"A;{fine};2026-01",
        f"A;{fine};2026-01",
        f";{fine};2026-01",
        "B;gopher://host/b.pdf;2026-01",
        "C;;2026-01",
        f"A;{fine};2026-02",
    ]
    (reports.lists / f"{WINDOW}.csv").write_bytes("\r\n".join(rows).encode("utf-16"))
    (reports.lists / "2025-07.csv").write_text(f"site,uri,period\nD,{fine},2025-07\n")
    (reports.lists / "2026-02.csv").write_text(f"site,uri,period\nA,{fine},2026-02\n")
    assert reports.run().summary.processed == 1
    found = {one.verdict: one.reason for one in reports.project.survey(now=reports.project.ledger.clock()).left_out}
    assert set(found) == {LISTED_TWICE, BAD_ROW, CONFLICT, UNKNOWN_WINDOW, LISTED_ELSEWHERE}
    assert len(left_out(reports)[BAD_ROW]) == 3
    assert (
        found[UNKNOWN_WINDOW]
        == "2025-07.csv line 2: window: found '2025-07'; allowed: a month from 2026-01-01 on, written like 2026-01"
    )


@pytest.mark.parametrize("content", [b"site,uri\nA,x\n", b"\xff\xfe\xff", b"site,uri,period\nA\xe9,x,2026-01\n", b""])
def test_an_unreadable_table_leaves_its_window_as_it_was(reports: ReportProject, server: FaultyHttp, content: bytes) -> None:
    """A table without its columns, or in another encoding, says nothing: neither what is there nor what is gone."""
    reports.list_reports([("A", serve(server, "A"))])
    reports.run()
    (reports.lists / f"{WINDOW}.csv").write_bytes(content)
    assert left_out(reports)[BAD_TABLE] == [f"{WINDOW}.csv"]
    assert reports.run().summary.skipped == 1
    assert states(reports) == {"A": COMPLETE}


def test_a_forecast_takes_nothing_from_a_window_whose_table_is_being_written(reports: ReportProject) -> None:
    """What says nothing just now withdraws nothing: the forecast is of the plan that the run keeps."""
    reports.list_reports([("A", reports.put("A.pdf", report_bytes("A")))])
    reports.run()
    reports.configure(("settle_s = 0", "settle_s = 3600"))
    (found,) = [one for one in forecast(reports.project, window=WINDOW, bytes_free=None).windows if one.window == WINDOW]
    assert (found.complete, found.superseded, found.to_compute) == (1, 0, 0)


def test_a_source_that_lists_nothing_any_more_stops(reports: ReportProject) -> None:
    """An unmounted disk is an empty folder: nothing is planned from it."""
    reports.list_reports([("A", reports.put("A.pdf", report_bytes("A")))])
    reports.run()
    (reports.lists / f"{WINDOW}.csv").unlink()
    with pytest.raises(EnvironmentUnfit, match="lists no report"):
        reports.run()
    assert states(reports) == {"A": COMPLETE}


def test_a_report_that_is_listed_no_more_leaves_and_returns(reports: ReportProject) -> None:
    """Its record is no record of the window meanwhile; when it is back nothing is read again."""
    listed = [(site, reports.put(f"{site}.pdf", report_bytes(site))) for site in ("A", "B")]
    reports.list_reports(listed)
    reports.run()
    before = reports.records()
    reports.list_reports(listed[:1])
    reports.run()
    assert [one.site for one in reports.records()] == ["A"]
    (withdrawn,) = reports.project.ledger.units(asset=RECORDS, state=UnitState.SUPERSEDED)
    assert [entry.what for entry in reports.project.ledger.history(withdrawn.key)] == ["attempt", "superseded"]
    assert _withdrawn_on_the_page(reports)
    reports.list_reports(listed)
    assert reports.run().summary.processed == 0
    assert reports.records() == before
    assert reports.project.ledger.history(withdrawn.key)[-1].what == "skip"
    assert not _withdrawn_on_the_page(reports)


def _withdrawn_on_the_page(reports: ReportProject) -> bool:
    batch = page_batch(reports.project, [WINDOW], reports.rows())
    reports.project.engine(inline=True).run(batch, run_id="page")
    page = reports.project.store.path(page_uri(WINDOW)).read_text()
    return "Withdrawn: listed no more" in page and "reports/B.pdf" in page


@pytest.mark.parametrize("is_web", [True, False])
def test_a_folder_or_an_index_page_is_read_by_pattern(reports: ReportProject, server: FaultyHttp, is_web: bool) -> None:
    """Site and period stand in the names; the period says the window; what fits no name is named."""
    names = ["A_2026-01.pdf", "B_2026-01.pdf", "A_2026-02.pdf", "A_2031-01.pdf", "_x.pdf"]
    for name in names:
        site, _, period = name.removesuffix(".pdf").partition("_")
        content = report_bytes(site, period=period)
        server.route(f"/all/{name}", ok(content, ETag=f'"{name}"'))
        reports.put(name, content)
    page = "".join(f'<a href="{name}">x</a>' for name in names).encode()

    def index(request: object) -> None:
        request.head(200, {"Content-Length": str(len(page)), "Content-Type": "text/html"})  # type: ignore[attr-defined]
        request.body(page)  # type: ignore[attr-defined]

    where = server.route("/all/", index) if is_web else "reports"
    pattern = 'pattern = "{site}_{period}.pdf"'
    reports.configure(('tables = "lists/{window}.csv"', f'listing = "{where}"\n{pattern}'), ("end = 2026-03-01\n", ""))
    report = reports.run("2026-01", "2026-02")
    assert report.summary.processed == 3
    assert [(one.site, one.period, one.window) for one in reports.records()] == [
        ("A", "2026-01", "2026-01"), ("A", "2026-02", "2026-02"), ("B", "2026-01", "2026-01"),
    ]  # fmt: skip
    assert {verdict: len(names) for verdict, names in left_out(reports).items()} == {IN_FUTURE: 1, NO_REPORT: 1}


@pytest.mark.parametrize("is_web", [True, False])
def test_no_report_of_a_listing_vanishes(reports: ReportProject, server: FaultyHttp, is_web: bool) -> None:
    """Letter case of the ending does not matter; names that do not fit are told, of a web page those with the ending."""
    reports.configure(
        (
            'tables = "lists/{window}.csv"',
            f'listing = "{server.url("/all/") if is_web else "."}"\npattern = "{{site}}_{{period}}.pdf"',
        )
    )
    names = ["A_2026-01.PDF", "B_2026-01.Pdf", "A.pdf", "A 2026-01.PDF", "A_2026-01.docx", ".B_2026-02.pdf"]
    for name in names:
        site = name[0]
        server.route(f"/all/{name.replace(' ', '%20')}", ok(report_bytes(site), ETag=f'"{name}"'))
        reports.put(name, report_bytes(site))
    links = [*names, "../", "?C=N;O=D", "style.css", "index.html"]
    page = "".join(f'<a href="{name}">x</a>' for name in links).encode()
    server.route("/all/", ok(page, Content_Type="text/html"))
    assert reports.run().summary.processed == 2
    assert [one.site for one in reports.records()] == ["A", "B"]
    told = {unquote(name.rpartition("/")[2]) for name in left_out(reports)[NO_REPORT]}
    expected = {"A.pdf", "A 2026-01.PDF"}
    assert told == (expected if is_web else expected | {"A_2026-01.docx", "tilewright.toml"})


def test_a_listing_without_any_report_stops(reports: ReportProject) -> None:
    """A note on the mount point is no report: nothing is withdrawn because of it."""
    reports.configure(('tables = "lists/{window}.csv"', 'listing = "reports"\npattern = "{site}_{period}.pdf"'))
    path = Path(reports.put("A_2026-01.pdf", report_bytes("A")))
    reports.run()
    path.unlink()
    reports.put("NOT MOUNTED.txt", b"")
    with pytest.raises(EnvironmentUnfit, match="lists no report"):
        reports.run()
    assert states(reports) == {"A": COMPLETE}


def test_a_local_report_is_shown_as_its_row_says(reports: ReportProject) -> None:
    """Plan, record, list, dead letter and what is left out name it by its path from the project's folder."""
    reports.put("A #1.pdf", report_bytes("A"))
    reports.put("odd.pdf", b"no report")
    rows = "A,reports/A #1.pdf,2026-01\nB,reports/B.pdf,2026-01\nC,reports/odd.pdf,2026-01\nA,reports/A #1.pdf,2026-02\n"
    (reports.lists / f"{WINDOW}.csv").write_text(f"site,uri,period\n{rows}")
    reports.run()
    assert {site: row.spec["uri"] for site, row in reports.by_site().items()} == {
        "A": "reports/A #1.pdf", "B": "reports/B.pdf", "C": "reports/odd.pdf",
    }  # fmt: skip
    assert [one.source_uri for one in reports.records()] == ["reports/A #1.pdf"]
    assert left_out(reports) == {CONFLICT: ["reports/A #1.pdf"]}
    reasons = sorted(letter.reason for letter in reports.project.ledger.dead_letters())
    assert reasons[0].startswith("reports/odd.pdf: ")
    assert reasons[1].startswith("there is no reports/B.pdf;")


def test_what_was_observed_of_local_files_stays_known(reports: ReportProject) -> None:
    """Contents are remembered under the names that they always had: none is read again because it is shown otherwise."""
    address = reports.put("A b.pdf", report_bytes("A"))
    reports.list_reports([("A", address)])
    reports.run()
    assert set(reports.project.ledger.observations(["file:///reports/A%20b.pdf"])) == {"file:///reports/A%20b.pdf"}


def test_secrets_of_an_address_are_nowhere(reports: ReportProject, server: FaultyHttp) -> None:
    """User, password and token of an address are used and not kept: in no row, table, page, message or file."""
    address = serve(server, "A").replace("://", "://user:hunter2@") + "?token=abcdef0123456789"
    odd = server.route("/odd.pdf", ok(b"odd")).replace("://", "://user:hunter2@")
    reports.list_reports([("A", address), ("odd", odd)])
    reports.run()
    assert states(reports) == {"A": COMPLETE, "odd": QUARANTINED}
    engine = reports.project.engine(inline=True)
    engine.run(table_batch(reports.project, [WINDOW], reports.rows()), run_id="table")
    engine.run(page_batch(reports.project, [WINDOW], reports.rows()), run_id="page")
    kept = [path for root in (reports.project.store.root, reports.project.config.state_dir) for path in root.rglob("*")]
    for path in kept:
        content = path.read_bytes() if path.is_file() else b""
        assert b"hunter2" not in content, path
        assert b"abcdef0123456789" not in content, path
