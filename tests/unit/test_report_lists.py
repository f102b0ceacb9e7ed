"""Tables and names that list reports: how they are read, which window a period is of, what is said of what cannot be used."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.fetch.model import FetchLimits
from assets.inspections.listing import ReportListing, list_reports
from assets.inspections.periods import normal_period, period_start
from assets.inspections.record import rules_of
from assets.inspections.rules import is_same_period
from assets.inspections.tables import BadRow, TableRow, TableUnreadable, read_table
from resources.config import load_config
from resources.config_inspections import InspectionsConfig
from resources.windows import WindowCalendar

COLUMNS = {"site": "site", "uri": "uri", "period": "period", "window": "window"}
NOW = datetime(2026, 6, 1, tzinfo=UTC)
HEAD = 'pipeline = "inspections"\n[window]\nstart = 2026-01-01\nevery = "month"\n'


def listed(folder: Path, text: str = "", **homes: str) -> ReportListing:
    """What a project's source lists."""
    path = folder / "tilewright.toml"
    path.write_text(HEAD + (text or "[source]\nsettle_s = 0\n"))
    config = load_config(path)
    assert isinstance(config, InspectionsConfig)
    return list_reports(config, WindowCalendar(config.window), homes=homes, limits=FetchLimits(), now=NOW)


@pytest.mark.parametrize(
    ("period", "start"),
    [
        ("2026", (2026, 1, 1)),
        ("2026-H2", (2026, 7, 1)),
        ("2026-q3", (2026, 7, 1)),
        ("2026-05", (2026, 5, 1)),
        ("2026-W01", (2025, 12, 29)),
        ("2026-05-31", (2026, 5, 31)),
        ("2026-Q5", None),
        ("2026-13", None),
        ("2026-02-30", None),
        ("2025-W54", None),
        ("May 2026", None),
        ("", None),
    ],
)
def test_a_period_begins_at_a_moment(period: str, start: tuple[int, int, int] | None) -> None:
    """Years, halves, quarters, months, ISO weeks and days have a first moment, and nothing else has."""
    assert period_start(period) == (None if start is None else datetime(*start, tzinfo=UTC))


SPELLED = st.one_of(
    st.tuples(
        st.sampled_from(["{q} {y}", "{y}-{q}", "{y}{q}", "{q}/{y}", " {y}  {q} ", "{y}-{m:02}", "{m}/{y}", "{m:02}.{y}",
                         "{n} {y}", "{n:.3}. {y}", "{y}-W{m:02}", "{y}-{m:02}-11", "{y}", "{n}", "{y}-{m}", "{n} of {y}"]),
        st.sampled_from(["Q1", "q2", "Q4", "H1", "h2", "H3", "Q5"]),
        st.integers(1, 14),
        st.sampled_from(["May", "march", "SEPTEMBER", "Sommer"]),
        st.sampled_from(["2026", "0000", "1999"]),
    ).map(lambda one: one[0].format(q=one[1], m=one[2], n=one[3], y=one[4])),
    st.text(max_size=12),
)  # fmt: skip


@given(one=SPELLED, other=SPELLED)
def test_a_period_has_one_form(one: str, other: str) -> None:
    """The form is final, equal periods have equal forms, and what has a beginning keeps it."""
    form = normal_period(one)
    assert normal_period(form) == form
    assert is_same_period(one, form)
    assert is_same_period(one, other) == (form.casefold() == normal_period(other).casefold())
    if period_start(one) is not None:
        assert period_start(form) == period_start(one)
    if period_start(form) is not None:
        assert form == form.upper()
        assert is_same_period(one, other) == (form == normal_period(other))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2026-q2", "2026-Q2"),
        ("Q2 2026", "2026-Q2"),
        ("2026h1", "2026-H1"),
        ("5/2026", "2026-05"),
        ("05.2026", "2026-05"),
        ("sep. 2026", "2026-09"),
        ("2026-w07", "2026-W07"),
        (" 2026-05-31 ", "2026-05-31"),
        ("2026", "2026"),
        ("13/2026", "13/2026"),
        ("q5 2026", "q5 2026"),
        ("  Spring \u00a0 2026", "Spring 2026"),
    ],
)
def test_the_form_of_a_period(text: str, form: str) -> None:
    """As the documentation writes them; what is no period of these stays, with single spaces."""
    assert normal_period(text) == form


def test_one_period_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    """Reports of one site and period are in conflict in any spelling, months in the configured language among them."""
    (tmp_path / "lists").mkdir()
    rows = "A,a.pdf,2026-05\nA,b.pdf,05/2026\nA,c.pdf,Mai 2026\nB,d.pdf,Sommer\nA,a.pdf,mai 2026\n"
    (tmp_path / "lists" / "2026-05.csv").write_text(f"site,uri,period\n{rows}")
    names = ["Januar", "Februar", "M\u00e4rz", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November"]
    found = listed(tmp_path, f"[source]\nsettle_s = 0\n[extraction]\nmonths = {[*names, 'Dezember']}\n")
    assert sorted(report.period for report in found.reports) == ["2026-05", "2026-05", "2026-05", "Sommer"]
    assert [one.verdict for one in found.left_out].count("CONFLICT") == 3
    assert [one.verdict for one in found.left_out].count("LISTED_TWICE") == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_of_spreadsheets_are_read(tmp_path: Path, encoding: str, delimiter: str) -> None:
    """Encoding by the byte order mark, delimiter by the head; columns in any order and letter case; blank rows mean nothing."""
    rows = [("Period", "NOTE", "Site ", "URI"), ("2026-05", 'a "b', "Grünau", "x.pdf"), ("", "", "", "")]
    quoted = ["" if cell == "" else '"' + cell.replace('"', '""') + '"' for row in rows for cell in row]
    lines = [delimiter.join(quoted[at : at + 4]) for at in range(0, len(quoted), 4)]
    path = tmp_path / "t.csv"
    path.write_bytes("\r\n".join(lines).encode(encoding))
    assert list(read_table(path, COLUMNS)) == [TableRow(2, "Grünau", "x.pdf", "2026-05")]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (",x.pdf,2026-05", "site"),
        ("A,,2026-05", "uri"),
        ("A,x.pdf", "period"),
        ("A,javascript:alert(1)//x,2026-05", None),
        ("A,gopher://x/y,2026-05", "uri"),
        ('A,x.pdf,"2026-05', "row"),
        (f"{'A' * 300},x.pdf,2026-05", "site"),
        ("A\x07,x.pdf,2026-05", "site"),
        (f"{'A' * 200_000},x.pdf,2026-05", "row"),
    ],
)
def test_a_bad_row_is_named_and_leaves_the_others_alone(tmp_path: Path, row: str, field: str | None) -> None:
    """Line and field are said; the rows before it are used."""
    path = tmp_path / "t.csv"
    path.write_text(f"site,uri,period\nfine,x.pdf,2026-05\n{row}\n", newline="")
    first, second = read_table(path, COLUMNS)
    assert first == TableRow(2, "fine", "x.pdf", "2026-05")
    assert (second.field if isinstance(second, BadRow) else None) == field
    assert second.line == 3 or field == "row"


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"site,uri,period\n\xe9,x,2026\n", b"\xff\xfe\x00", b'"site,uri,period'])
def test_an_unreadable_table_says_so(tmp_path: Path, content: bytes) -> None:
    """No columns, another encoding, an endless quote: nothing is made of it."""
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TableUnreadable):
        list(read_table(path, COLUMNS))


def test_the_window_is_the_tables_then_the_rows_then_the_periods(tmp_path: Path) -> None:
    """A table's name comes first, then its column, then where the period begins."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "2026-03.csv").write_text("site,uri,period\nA,a.pdf,spring\n")
    assert [report.window for report in listed(tmp_path).reports] == ["2026-03"]
    (tmp_path / "all.csv").write_text("site,uri,period,window\nA,a.pdf,2026-05,2026-04\nB,b.pdf,Q2 2026,\nC,c.pdf,spring,\n")
    found = listed(tmp_path, '[source]\ntables = "all.csv"\nsettle_s = 0\n')
    assert {report.site: report.window for report in found.reports} == {"A": "2026-04", "B": "2026-04"}
    assert [(one.verdict, "period" in one.reason) for one in found.left_out] == [("BAD_ROW", True)]


def test_a_report_stays_in_the_window_it_was_planned_in(tmp_path: Path) -> None:
    """An address that two windows list belongs to the one that has it, else to the first; order of files means nothing."""
    (tmp_path / "lists").mkdir()
    for window in ("2026-02", "2026-03"):
        (tmp_path / "lists" / f"{window}.csv").write_text(f"site,uri,period\nA,a.pdf,{window}\n")
    (first,) = listed(tmp_path).reports
    assert first.window == "2026-02"
    (second,) = listed(tmp_path, **{first.key: "2026-03"}).reports
    assert second.window == "2026-03"
    gone = listed(tmp_path, **{first.key: "2026-01"})
    assert gone.reports == ()
    assert [one.verdict for one in gone.left_out] == ["LISTED_ELSEWHERE", "LISTED_ELSEWHERE"]


def test_a_table_that_is_being_written_silences_its_window(tmp_path: Path) -> None:
    """What is younger than source.settle_s is not read; of its window nothing is known, of others all."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "2026-02.csv").write_text("site,uri,period\nA,a.pdf,2026-02\n")
    found = listed(tmp_path, "[source]\nsettle_s = 3600\n")
    assert (found.is_silent("2026-02"), found.is_silent("2026-01"), found.reports) == (True, False, ())


def test_the_configuration_in_the_page_can_be_used(tmp_path: Path) -> None:
    """The example of docs/inspections.md loads, and its rules are made."""
    page = (Path(__file__).parents[2] / "docs" / "inspections.md").read_text()
    block = next(found for found in re.findall(r"(?:^    .*\n|^\n)+", page, re.MULTILINE) if "pipeline =" in found)
    path = tmp_path / "tilewright.toml"
    path.write_text(re.sub(r"^    ", "", block, flags=re.MULTILINE))
    (tmp_path / "sites.csv").write_text("site\nTWR-001\n")
    config = load_config(path)
    assert isinstance(config, InspectionsConfig)
    assert [rule.name for rule in rules_of(config).fields] == ["inspected", "height_m"]
