"""Records of reports: what is read from a PDF, which rules there are, and that equal bytes give equal values."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from assets.inspections.extraction import TextLimits
from assets.inspections.findings import FindingsRule
from assets.inspections.record import EXTRACTION_VERSION, ExtractionRules, extract_report, rules_of
from assets.inspections.registry import load_registry
from assets.inspections.rules import FieldRule
from pipelines.demo.report_pdfs import report_pdf, scanned_pdf
from resources.config import load_config
from resources.config_inspections import InspectionsConfig
from resources.errors import ConfigurationError
from resources.keys import digest_of

FACTS = {
    "Site ID": "BR-1",
    "Reporting period": "Q1 2026",
    "Inspected": "3 March 2026",
    "Condition": "Poor",
    "Clearance": "1,250.5 cm",
}
FINDINGS = [{"Element": f"Pier {at}", "Severity": "minor", "Remark": f"crack of {at} mm" if at else ""} for at in range(40)]
RULES = ExtractionRules(
    fields=(
        FieldRule("inspected", "inspected", "date", date_formats=("YYYY-MM-DD", "D MMMM YYYY")),
        FieldRule("condition", "condition", "choice", choices=("good", "poor")),
        FieldRule("clearance", "clearance", "number", unit="m", units=(("cm", 0.01),)),
        FieldRule("weather", "weather", is_required=False),
    ),
    findings=FindingsRule((("element", "Element"), ("severity", "Severity"), ("remark", "Remark"))),
)
GOLDEN = ("1", "d1c9cb4e8c4f329f15ca458b540420b85b00db4d1a61b4a546cc29d83703c4b1")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report of two pages with a table over both."""
    path = tmp_path / "report.pdf"
    path.write_bytes(report_pdf(FACTS, findings=FINDINGS))
    return path


def test_a_report_is_read_whole(report: Path) -> None:
    """Pages, fields in their units, and all rows of a table that goes over a page."""
    found = extract_report(report, site="BR-1", period="2026-Q1", rules=RULES)
    assert found.page_count == 2
    assert found.fields == {"inspected": "2026-03-03", "condition": "poor", "clearance": 12.505}
    assert found.findings == [{name.lower(): text for name, text in row.items()} for row in FINDINGS]
    assert found.warnings == ()


def test_equal_bytes_give_the_record_they_gave_before(report: Path) -> None:
    """A change here changes records: raise EXTRACTION_VERSION, and every report is read anew."""
    once, twice = (extract_report(report, site="BR-1", period="2026-Q1", rules=RULES) for _ in range(2))
    assert once == twice
    assert (EXTRACTION_VERSION, digest_of(asdict(once))) == GOLDEN


def test_reports_are_made_with_equal_bytes() -> None:
    """Demo and tests deliver the same content twice."""
    makes = (lambda: report_pdf(FACTS, findings=FINDINGS), scanned_pdf, lambda: report_pdf(FACTS, password="p"))
    for make in makes:
        assert hashlib.sha256(make()).digest() == hashlib.sha256(make()).digest()


def test_a_table_that_may_lack_is_a_warning(tmp_path: Path) -> None:
    """A report without findings has its record, which says so."""
    path = tmp_path / "report.pdf"
    path.write_bytes(report_pdf(FACTS))
    found = extract_report(path, site="BR-1", period="2026-Q1", rules=RULES)
    assert found.findings == []
    assert "no table" in found.warnings[0]


def test_rules_that_differ_have_other_digests(tmp_path: Path) -> None:
    """Whatever can change a record changes the digest; a pickled copy has the same."""
    registry = tmp_path / "sites.csv"
    registry.write_text("site\nBR-1\n")
    others = [
        replace(RULES, fields=RULES.fields[1:]),
        replace(RULES, fields=(replace(RULES.fields[0], label="seen"), *RULES.fields[1:])),
        replace(RULES, findings=None),
        replace(RULES, site_label=""),
        replace(RULES, months=tuple("abcdefghijkl")),
        replace(RULES, limits=TextLimits(pages_max=7)),
        replace(RULES, registry=load_registry(registry)),
    ]
    assert len({RULES.digest, *(rules.digest for rules in others)}) == len(others) + 1
    assert pickle.loads(pickle.dumps(RULES)).digest == RULES.digest


def test_a_registry_is_its_sites(tmp_path: Path) -> None:
    """Order, further columns, marks and spelling of the file do not change its digest; a site does."""
    first, second, third = (tmp_path / f"{name}.csv" for name in "abc")
    first.write_text("site,name\nBR-1,One\nBr\u00fccke 2,Two\n", encoding="utf-8")
    second.write_text("\ufeffName;SITE\r\nZwei;Bru\u0308cke  2\r\n;BR-1 \r\n\r\n", encoding="utf-8")
    third.write_text("site\nBR-1\n")
    assert load_registry(first) == load_registry(second)
    assert load_registry(first).digest != load_registry(third).digest
    assert "Br\u00fccke 2" in load_registry(second)
    assert "br-1" not in load_registry(first)


@pytest.mark.parametrize("text", ["", "name\nBR-1\n", "site\n", "site\n\n"])
def test_a_registry_without_sites_stops(tmp_path: Path, text: str) -> None:
    """It would set every report aside: that is no fault of the reports."""
    path = tmp_path / "sites.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"sites\.csv"):
        load_registry(path)
    with pytest.raises(ConfigurationError, match=r"absent\.csv"):
        load_registry(tmp_path / "absent.csv")


CONFIGURATION = """
pipeline = "inspections"
[window]
start = 2026-01-01
[registry]
file = "sites.csv"
column = "Tower"
[extraction]
max_pages = 50
[[fields]]
name = "clearance"
label = "(free )?clearance"
type = "number"
unit = "m"
units = { mm = 0.001, cm = 0.01 }
min = 0
[[fields]]
name = "inspected"
label = "date"
type = "date"
date_formats = ["D MMM YYYY"]
[findings]
columns = { element = "Element", state = "State" }
"""


def test_rules_come_from_the_configuration(tmp_path: Path) -> None:
    """Fields, findings, limits and the registry, each as set."""
    (tmp_path / "sites.csv").write_text("tower\nT-1\n")
    config = configured(tmp_path, CONFIGURATION)
    rules = rules_of(config)
    assert [(rule.name, rule.type, rule.unit, rule.least, rule.most) for rule in rules.fields] == [
        ("clearance", "number", "m", 0.0, None),
        ("inspected", "date", None, None, None),
    ]
    assert rules.fields[0].units == (("cm", 0.01), ("mm", 0.001))
    assert rules.findings == FindingsRule((("element", "Element"), ("state", "State")))
    assert rules.limits.pages_max == 50
    assert rules.registry is not None
    assert "T-1" in rules.registry
    assert rules_of(configured(tmp_path, CONFIGURATION)).digest == rules.digest


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('label = "date"', 'label = "("', ["fields", "label", "regular expression"]),
        ('type = "date"', 'type = "day"', ["fields", "type", "'day'"]),
        ('name = "inspected"', 'name = "Inspected on"', ["fields", "name"]),
        ('name = "inspected"', 'name = "clearance"', ["fields", "two fields are named clearance"]),
        ("D MMM YYYY", "D MMM", ["date_formats", "YYYY-MM-DD"]),
        ("D MMM YYYY", "%d.%m.%Y", ["date_formats", "%d"]),
        ('type = "date"', 'type = "choice"', ["choices"]),
        ('unit = "m"', "", ["units need unit"]),
        ("cm = 0.01", "cm = -1", ["units", "greater than 0"]),
        ("min = 0", "min = 3\nmax = 2", ["min", "max"]),
        ('state = "State"', 'state = "ELEMENT"', ["findings", "one header"]),
        ("max_pages = 50", "max_pages = 0", ["max_pages"]),
        (
            'pipeline = "inspections"',
            'pipeline = "inspections"\nsource.tables = "a.csv"\nsource.listing = "b"',
            ["tables or listing"],
        ),
        ('pipeline = "inspections"', 'pipeline = "inspections"\nsource.listing = "b"', ["listing and pattern"]),
        (
            'pipeline = "inspections"',
            'pipeline = "inspections"\nsource.listing = "b"\nsource.pattern = "{site}.pdf"',
            ["pattern", "{period}"],
        ),
        (
            'pipeline = "inspections"',
            'pipeline = "inspections"\nsource.tables = "{window}/a.csv"',
            ["tables", "name of the file"],
        ),
        ('pipeline = "inspections"', 'pipeline = "inspections"\nfetch.per_host = 0', ["per_host"]),
        ('pipeline = "inspections"', 'pipeline = "inspections"\nsource.same_uri = "both"', ["same_uri", "replace", "keep"]),
    ],
)
def test_what_is_wrong_is_said_by_key(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    """The key, what was found and what is allowed."""
    assert old in CONFIGURATION
    with pytest.raises(ConfigurationError) as raised:
        configured(tmp_path, CONFIGURATION.replace(old, new))
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_the_folder_that_the_source_is_in(tmp_path: Path) -> None:
    """Tables, a local listing, or none for a listing elsewhere; tables in lists/ are the default."""
    start = 'pipeline = "inspections"\n[window]\nstart = 2026-01-01\n[source]\n'
    listing = 'pattern = "{site}_{period}.pdf"\nlisting = '
    assert configured(tmp_path, start).input_dirs == [tmp_path / "lists"]
    assert configured(tmp_path, start + 'tables = "in/*.csv"').input_dirs == [tmp_path / "in"]
    assert configured(tmp_path, f'{start}{listing}"scans"').input_dirs == [tmp_path / "scans"]
    assert configured(tmp_path, f'{start}{listing}"https://example.com/x/"').input_dirs == []


def configured(folder: Path, text: str) -> InspectionsConfig:
    """The configuration of a text."""
    path = folder / "tilewright.toml"
    path.write_text(text)
    found = load_config(path)
    assert isinstance(found, InspectionsConfig)
    return found
