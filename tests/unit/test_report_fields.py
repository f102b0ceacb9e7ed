"""Values, fields and tables of findings: what is written, what it means, and what is refused."""

from __future__ import annotations

import pytest

from assets.inspections.extraction import Cell, Line
from assets.inspections.fields import find_fields, find_texts
from assets.inspections.findings import FindingsRule, find_findings
from assets.inspections.rules import FieldRule, is_same_period, value_of
from resources.errors import ErrorKind, UnitRejected

NUMBER = FieldRule("height", "height", "number", unit="m", units=(("cm", 0.01), ("km", 1000.0)), least=-10, most=5000)
COMMA = FieldRule("height", "height", "number", decimal=",")


def line(*cells: tuple[str, float] | str, page: int = 0) -> Line:
    """A line of cells at places; those without stand 100 points apart."""
    placed = [(cell, 100.0 * at) if isinstance(cell, str) else cell for at, cell in enumerate(cells)]
    return Line(page, tuple(Cell(text, left, left + 4.0 * len(text)) for text, left in placed))


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("12", NUMBER, 12.0),
        ("12.50 m", NUMBER, 12.5),
        ("1,250.5 cm", NUMBER, 12.505),
        ("1 250 cm", NUMBER, 12.5),
        ("0.1km", NUMBER, 100.0),
        ("-3 m", NUMBER, -3.0),
        ("\u22123 m", NUMBER, -3.0),
        ("-0", NUMBER, 0.0),
        ("30 cm", NUMBER, 0.3),
        ("1.250,5", COMMA, 1250.5),
        ("1'250", COMMA, 1250.0),
        ("0,5", COMMA, 0.5),
    ],
)
def test_numbers(text: str, rule: FieldRule, expected: float) -> None:
    """By the configured decimal sign and units, exact in decimal."""
    assert value_of(text, rule) == expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("12 ft", NUMBER),
        ("12 M", NUMBER),
        ("1.250,5", NUMBER),
        ("12,50", NUMBER),
        ("1,25,000", NUMBER),
        ("12.", NUMBER),
        (".5", NUMBER),
        ("about 12", NUMBER),
        ("1e3", NUMBER),
        ("\u0661\u0662", NUMBER),
        ("nan", NUMBER),
        ("12.50", COMMA),
        ("12 m", COMMA),
        ("", NUMBER),
        ("9" * 400, FieldRule("number", "number", "number")),
    ],
)
def test_what_is_no_number_is_refused(text: str, rule: FieldRule) -> None:
    """Nothing is guessed: another decimal sign, an unknown unit, words."""
    assert kind_of(text, rule) is ErrorKind.INVALID_FIELD


@pytest.mark.parametrize("text", ["5000.1", "-11", "6 km"])
def test_a_number_out_of_range_is_called_so(text: str) -> None:
    """The bounds are in the field's unit, and belong to what is allowed."""
    assert kind_of(text, NUMBER) is ErrorKind.VALUE_OUT_OF_RANGE
    assert value_of("5000", NUMBER) == 5000
    assert value_of("-10", NUMBER) == -10


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("2026-03-01", "YYYY-MM-DD", "2026-03-01"),
        ("01.03.2026", "DD.MM.YYYY", "2026-03-01"),
        ("3/1/2026", "M/D/YYYY", "2026-03-01"),
        ("1  march 2026", "D MMMM YYYY", "2026-03-01"),
        ("Mar 1, 2026", "MMM D, YYYY", "2026-03-01"),
        ("29.02.2024", "DD.MM.YYYY", "2024-02-29"),
    ],
)
def test_dates(text: str, form: str, expected: str) -> None:
    """By the configured formats, as YYYY-MM-DD."""
    assert value_of(text, FieldRule("day", "day", "date", date_formats=("YYYY.MM.DD", form))) == expected


@pytest.mark.parametrize("text", ["2026-02-30", "2026-13-01", "26-01-01", "2026-1-1", "2026-01-01 later", "M\u00e4rz", ""])
def test_what_is_no_date_is_refused(text: str) -> None:
    """A day that does not exist, another order, more words."""
    assert kind_of(text, FieldRule("day", "day", "date")) is ErrorKind.INVALID_FIELD


def test_months_have_configured_names() -> None:
    """Reports in other languages name their months; the system's locale has no say."""
    months = ["Januar", "Februar", "M\u00e4rz", *(f"Monat {at}" for at in range(4, 13))]
    rule = FieldRule("day", "day", "date", date_formats=("D. MMMM YYYY",))
    assert value_of("1. M\u00c4RZ 2026", rule, months=months) == "2026-03-01"
    assert is_same_period("M\u00c4R 2026", "2026-03", months=months)


def test_a_choice_is_recorded_as_configured() -> None:
    """Letter case and spaces do not matter."""
    rule = FieldRule("state", "state", "choice", choices=("Good", "In need of repair"))
    assert value_of("in need  OF repair", rule) == "In need of repair"
    assert kind_of("bad", rule) is ErrorKind.INVALID_FIELD


@pytest.mark.parametrize(
    ("one", "other"),
    [("Q1 2026", "2026-Q1"), ("2026 Q1", "2026-q1"), ("H2/2026", "2026-H2"), ("05/2026", "2026-05"), ("5.2026", "2026-05"),
     ("May 2026", "2026-05"), ("Sep. 2026", "2026-09"), ("2026-w07", "2026-W07"), ("Spring  2026", "spring 2026")],
)  # fmt: skip
def test_spellings_of_one_period(one: str, other: str) -> None:
    """The common ways to write a quarter, half, month and week; anything else by its words."""
    assert is_same_period(one, other)


@pytest.mark.parametrize(("one", "other"), [("Q1 2026", "2026-Q2"), ("2026", "2026-01"), ("2026-01-05", "2026-01"), ("", "2026")])
def test_other_periods_are_others(one: str, other: str) -> None:
    """A part of a period is not the period."""
    assert not is_same_period(one, other)


def test_a_field_stands_behind_its_label() -> None:
    """In the same cell after a colon, or in the next one; a label within a sentence is none."""
    lines = [
        line("Site: A-1", "Inspector = J. Doe"),
        line("Condition", "good  enough"),
        line("The condition: is not stated here"),
    ]
    assert list(find_texts(lines, "site")) == ["A-1"]
    assert list(find_texts(lines, "inspector")) == ["J. Doe"]
    assert list(find_texts(lines, "condition")) == ["good enough"]
    assert list(find_texts(lines, "sit")) == []
    assert list(find_texts(lines, "site|inspector")) == ["A-1", "J. Doe"]
    assert list(find_texts(lines, "condition", skip={1})) == []


def test_fields_that_are_missing_are_all_named() -> None:
    """One dead letter says everything that is to be mended; an optional field may lack."""
    rules = [FieldRule("a", "a"), FieldRule("b", "b"), FieldRule("c", "c", is_required=False)]
    with pytest.raises(UnitRejected, match=r"lacks a .*, b ") as raised:
        find_fields([line("x: 1")], rules)
    assert raised.value.kind is ErrorKind.MISSING_FIELD
    assert find_fields([line("a: 1"), line("b: 2")], rules) == {"a": "1", "b": "2"}


def test_one_value_said_twice_is_one_and_two_are_refused() -> None:
    """A heading repeats on every page; two values cannot both be recorded."""
    assert find_fields([line("height: 100 cm"), line("height: 1 m")], [NUMBER]) == {"height": 1.0}
    with pytest.raises(UnitRejected, match="one value") as raised:
        find_fields([line("height: 1 m"), line("height: 2 m")], [NUMBER])
    assert raised.value.kind is ErrorKind.INVALID_FIELD


TABLE = FindingsRule((("element", "Element"), ("state", "State"), ("note", "Note")))


def test_a_table_is_read_by_the_places_of_its_columns() -> None:
    """Empty cells stay empty, a line without the first column continues the row, a sentence ends the table."""
    lines = [
        line("Site: A"),
        line("ELEMENT", "State", "Note"),
        line(("Pier 1", 0), ("good", 101)),
        line(("Pier 2", 0), ("poor", 99), ("crack at", 200)),
        line(("the foot", 202)),
        line("State: overall good, says the inspector who signs this"),
        line(("Pier 9", 0), ("no row", 100)),
    ]
    found = find_findings(lines, TABLE)
    assert [tuple(row.values()) for row in found.rows] == [("Pier 1", "good", ""), ("Pier 2", "poor", "crack at the foot")]
    assert found.lines == {1, 2, 3, 4}


def test_a_table_goes_on_where_its_headers_stand_again() -> None:
    """On the next page, with the columns where they are there; without headers a page has no rows."""
    lines = [
        line("Element", "State", "Note"),
        line("Pier 1", "good", "-"),
        line(("Note", 0), ("Element", 60), ("State", 120), page=1),
        line(("new", 0), ("Pier 2", 60), ("poor", 120), page=1),
        line("Pier 3", "good", "-", page=2),
    ]
    found = find_findings(lines, TABLE)
    assert [row["element"] for row in found.rows] == ["Pier 1", "Pier 2"]
    assert found.rows[1] == {"element": "Pier 2", "state": "poor", "note": "new"}


def test_a_report_without_the_table_says_so() -> None:
    """No headers: no table, which is not the same as one without rows."""
    assert not find_findings([line("Element", "State")], TABLE).is_there
    empty = find_findings([line("Element", "State", "Note")], TABLE)
    assert empty.is_there
    assert empty.rows == ()


def kind_of(text: str, rule: FieldRule) -> ErrorKind:
    """The kind under which a value is refused."""
    with pytest.raises(UnitRejected) as raised:
        value_of(text, rule)
    return raised.value.kind
