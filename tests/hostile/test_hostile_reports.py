"""Hostile and odd reports: each gets its verdict and one clear message from a bounded worker, and none stops the others.

The real files lie in ../shared/data/pdfs, beside the repository; the made ones cover each kind of rejection.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from assets.inspections.extraction import TextLimits
from assets.inspections.findings import FindingsRule
from assets.inspections.record import ExtractionRules, extract_report
from assets.inspections.registry import Registry
from assets.inspections.rules import FieldRule
from pipelines.demo.report_pdfs import report_pdf, scanned_pdf
from resources.config import ExecutorConfig
from resources.errors import ErrorKind, Verdict
from resources.executor import LocalExecutor
from resources.staging import Staged, StageTask
from resources.verdicts import Failure
from tests.support.workers import answer_of

# by itself: workers import this module too, and need nothing of scenes
PDFS = Path(__file__).parents[3] / "shared" / "data" / "pdfs"
K = ErrorKind
ANY_TEXT = ExtractionRules(site_label="", period_label="", limits=TextLimits(text_chars_min=1))

# file of ../shared/data/pdfs -> pages and characters of its text, or the kind of its rejection
REAL: dict[str, tuple[int, int] | ErrorKind] = {
    "GeoBase_NHNC1_Data_Model_UML_EN.pdf": (19, 18820),
    "PDFBOX-3148-2-fuzzed.pdf": K.NO_TEXT,
    "bug1020226.pdf": K.UNREADABLE,
    "bug1250079.pdf": K.UNREADABLE,
    "bug1980958.pdf": K.UNREADABLE,
    "empty.pdf": K.NO_TEXT,
    "empty_protected.pdf": K.NO_TEXT,  # opens without a password, and is blank
    "filled-background.pdf": K.NO_TEXT,
    "flate_bomb.pdf": K.TOO_LARGE,
    "helloworld-bad.pdf": (1, 12),
    "html_as_pdf.pdf": K.NOT_A_PDF,
    "huge_page.pdf": K.NO_TEXT,
    "imagemagick-CCITTFaxDecode.pdf": K.NO_TEXT,
    "indirect-rotation.pdf": (5, 2930),
    "issue12810.pdf": (1, 13),  # a minute's work for others, a moment's for PDFium
    "issue13931.pdf": (1, 512),
    "issue15590.pdf": K.NO_TEXT,
    "issue4575.pdf": (1, 9),
    "issue5549.pdf": K.NO_TEXT,
    "issue6069.pdf": (1, 48),  # text before the header
    "large_jpeg_downscale.pdf": K.NO_TEXT,
    "operator-in-TJ-array.pdf": (1, 39),
    "poppler-395-0-fuzzed.pdf": K.UNREADABLE,
    "poppler-67295-0.pdf": (1, 13),  # a page tree without end
    "poppler-85140-0.pdf": K.NO_TEXT,
    "poppler-90-0-fuzzed.pdf": (16, 1022),
    "poppler-91414-0-53.pdf": (1, 6),
    "pr6531_1.pdf": K.ENCRYPTED,
    "r4-aes-user-password.pdf": K.ENCRYPTED,
    "r6-empty-password.pdf": (1, 34),  # AES-256, opens with an empty password
    "tiling-pattern-large-steps.pdf": K.NO_TEXT,
    "truncated_half.pdf": K.UNREADABLE,
    "two-different-pages.pdf": (2, 2),
    "xref_command_missing.pdf": (1, 16),
    "zero_bytes.pdf": K.EMPTY_FILE,
    "zero_pages.pdf": K.ZERO_PAGES,
}
SCANS = {"imagemagick-CCITTFaxDecode.pdf", "issue5549.pdf", "large_jpeg_downscale.pdf"}


@pytest.mark.skipif(not PDFS.is_dir(), reason="the real reports are not there: ../shared/data/pdfs")
def test_every_real_report_is_here() -> None:
    """A file that is added gets a verdict too."""
    assert {path.name for path in PDFS.iterdir()} - {"index.tsv"} == set(REAL)


@pytest.mark.skipif(not PDFS.is_dir(), reason="the real reports are not there: ../shared/data/pdfs")
def test_every_real_report_gets_its_verdict_in_a_bounded_worker(tmp_path: Path) -> None:
    """In one pool: no worker dies, no file stops another, what is not read is quarantined, and a scan is called so."""
    found, messages = in_a_worker({name: (PDFS / name, ANY_TEXT) for name in REAL}, tmp_path)
    assert found == REAL
    assert all(("scanned" in messages[name]) == (name in SCANS) for name, kind in REAL.items() if kind is K.NO_TEXT)


FACTS = {"Site": "BR-1", "Period": "2026-Q1", "Inspected": "2026-02-03", "Condition": "good", "Clearance": "4.2 m"}
RULES = ExtractionRules(
    fields=(
        FieldRule("inspected", "inspected", "date"),
        FieldRule("condition", "condition", "choice", choices=("good", "poor")),
        FieldRule("clearance", "clearance", "number", unit="m", units=(("cm", 0.01),), least=1, most=10),
    ),
    registry=Registry(frozenset({"BR-1"}), "of the test"),
)
WITH_TABLE = ExtractionRules(findings=FindingsRule((("element", "Element"), ("state", "State")), is_required=True))


def made() -> dict[str, tuple[bytes, ExtractionRules, tuple[int, int] | ErrorKind]]:
    """A report for each kind of rejection, one that is in order first and last."""
    good = report_pdf(FACTS)
    without = {name: text for name, text in FACTS.items() if name != "Condition"}
    return {
        "in order": (good, RULES, (1, 87)),
        "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), RULES, K.NOT_A_PDF),
        "a web page": (b"<html><body>Please log in</body></html>", RULES, K.NOT_A_PDF),
        "no bytes": (b"", RULES, K.EMPTY_FILE),
        "zeros": (bytes(5000), RULES, K.EMPTY_FILE),
        "a header and no more": (b"%PDF-1.7\n", RULES, K.UNREADABLE),
        "half of it": (good[: len(good) // 3], RULES, K.UNREADABLE),
        "encrypted": (report_pdf(FACTS, password="secret"), RULES, K.ENCRYPTED),
        "no pages": (pdf_of([]), RULES, K.ZERO_PAGES),
        "scanned": (scanned_pdf(), RULES, K.NO_TEXT),
        "too many pages": (report_pdf(FACTS, pages=9), rules(limits=TextLimits(pages_max=8)), K.TOO_LARGE),
        "too much text": (report_pdf(FACTS), rules(limits=TextLimits(chars_max=50)), K.TOO_LARGE),
        "a bomb": (pdf_of([zlib.compress(bytes(200 << 20), 9)], "/FlateDecode"), RULES, K.TOO_LARGE),
        "a bomb in a bomb": (
            pdf_of([zlib.compress(zlib.compress(bytes(200 << 20), 9), 9)], "[/FlateDecode /FlateDecode]"),
            RULES,
            K.TOO_LARGE,
        ),
        "a bomb in ASCII85": (
            pdf_of([base64.a85encode(zlib.compress(bytes(200 << 20), 9)) + b"~>"], "[/ASCII85Decode /FlateDecode]"),
            RULES,
            K.TOO_LARGE,
        ),
        "a bomb in hexadecimal": (
            pdf_of([zlib.compress(bytes(200 << 20), 9).hex("\n", 32).encode() + b">"], "[ /AHx /Fl ]"),
            RULES,
            K.TOO_LARGE,
        ),
        "no such field": (report_pdf(without), RULES, K.MISSING_FIELD),
        "no table": (good, WITH_TABLE, K.MISSING_FIELD),
        "no site": (report_pdf({"Period": "2026-Q1", "Condition": "good enough to be read"}), RULES, K.MISSING_FIELD),
        "no period": (report_pdf({"Site": "BR-1", "Condition": "good enough to be read"}), RULES, K.MISSING_FIELD),
        "no such day": (report_pdf({**FACTS, "Inspected": "2026-02-30"}), RULES, K.INVALID_FIELD),
        "no such choice": (report_pdf({**FACTS, "Condition": "so so"}), RULES, K.INVALID_FIELD),
        "no such unit": (report_pdf({**FACTS, "Clearance": "4.2 ft"}), RULES, K.INVALID_FIELD),
        "out of range": (report_pdf({**FACTS, "Clearance": "4200 cm"}), RULES, K.VALUE_OUT_OF_RANGE),
        "another site": (report_pdf({**FACTS, "Site": "BR-2"}), RULES, K.SITE_MISMATCH),
        "a site nobody knows": (good, rules(registry=Registry(frozenset({"BR-2"}), "of others")), K.UNKNOWN_SITE),
        "another period": (report_pdf({**FACTS, "Period": "Q2 2026"}), RULES, K.PERIOD_MISMATCH),
        "in order again": (good, RULES, (1, 87)),
    }


def test_every_kind_of_rejection_is_called_by_its_name(tmp_path: Path) -> None:
    """Made reports, each wrong in one way, beside two that are in order: each gets its kind from the same worker."""
    reports = made()
    tasks = {}
    for name, (content, ruled, _) in reports.items():
        path = tmp_path / f"{name}.pdf"
        path.write_bytes(content)
        tasks[name] = (path, ruled)
    found, _ = in_a_worker(tasks, tmp_path)
    assert found == {name: expected for name, (_, _, expected) in reports.items()}


def test_a_verdict_does_not_depend_on_the_report_before(tmp_path: Path) -> None:
    """PDFium leaves the error of an earlier file standing where a later one fails without its own."""
    contents = {"locked": report_pdf(FACTS, password="secret"), "none": pdf_of([]), "torn": b"%PDF-1.7\nno more"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    alone = {"locked": K.ENCRYPTED, "none": K.ZERO_PAGES, "torn": K.UNREADABLE}
    # each follows each
    order = ("locked", "none", "torn", "none", "locked", "torn", "locked")
    tasks = {f"{at} {name}": (tmp_path / name, RULES) for at, name in enumerate(order)}
    found, _ = in_a_worker(tasks, tmp_path)
    assert found == {f"{at} {name}": alone[name] for at, name in enumerate(order)}


def test_a_bomb_is_found_without_its_weight_in_memory(tmp_path: Path) -> None:
    """A stream of 1.2 GB is called too large in a worker that may take 384 MB."""
    inflater = zlib.compressobj(9)
    zeros = bytes(1 << 20)
    bomb = b"".join([*(inflater.compress(zeros) for _ in range(1200)), inflater.flush()])
    path = tmp_path / "bomb.pdf"
    path.write_bytes(pdf_of([bomb], "/FlateDecode"))
    found, messages = in_a_worker({"bomb": (path, RULES)}, tmp_path, memory_mb=384)
    assert found == {"bomb": K.TOO_LARGE}
    assert "extraction.max_stream_mb" in messages["bomb"]


def rules(**changes: object) -> ExtractionRules:
    """The rules with others in some places."""
    return ExtractionRules(**{"fields": RULES.fields, "registry": RULES.registry, **changes})  # type: ignore[arg-type]


def pdf_of(streams: list[bytes], filters: str = "") -> bytes:
    """A PDF by hand: a page for each content stream."""
    kids = " ".join(f"{3 + 2 * at} 0 R" for at in range(len(streams)))
    parts = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Count {len(streams)}/Kids[{kids}]>>".encode()]
    for at, stream in enumerate(streams):
        parts.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {4 + 2 * at} 0 R>>".encode())
        filtered = f"/Filter {filters}" if filters else ""
        parts.append(f"<</Length {len(stream)}{filtered}>>\nstream\n".encode() + stream + b"\nendstream")
    body, places = b"%PDF-1.7\n", []
    for at, part in enumerate(parts, start=1):
        places.append(len(body))
        body += f"{at} 0 obj\n".encode() + part + b"\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    return (
        body
        + (
            f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{table}trailer\n<</Size {len(parts) + 1}/Root 1 0 R>>\n"
            f"startxref\n{len(body)}\n%%EOF\n"
        ).encode()
    )


def in_a_worker(
    reports: Mapping[str, tuple[Path, ExtractionRules]], folder: Path, *, memory_mb: int = 768
) -> tuple[dict[str, tuple[int, int] | ErrorKind], dict[str, str]]:
    """Pages and characters of each report, or the kind of its rejection; and the reasons."""
    executor = LocalExecutor(
        ExecutorConfig(workers=1, unit_memory_mb=memory_mb, unit_time_s=60), preload=("assets.inspections.record",)
    )
    found: dict[str, tuple[int, int] | ErrorKind] = {}
    messages: dict[str, str] = {}
    try:
        for name, (report, ruled) in reports.items():
            work = partial(read_beside, report, ruled)
            answer = answer_of(executor, StageTask(name, 1, name, name, folder / f"{name}.staged", work, as_it_is))
            if isinstance(answer, Staged):
                found[name] = (answer.made.metrics["pages"], answer.made.metrics["chars"])
            else:
                assert isinstance(answer, Failure)
                assert answer.verdict is Verdict.QUARANTINE, (name, answer)
                found[name], messages[name] = answer.kind, answer.message
    finally:
        executor.close()
    return found, messages


def read_beside(report: Path, ruled: ExtractionRules, path: Path) -> dict[str, object]:
    """Read a report, and leave something at `path` as the engine expects of an output."""
    read = extract_report(report, site="BR-1", period="2026-Q1", rules=ruled)
    path.write_text("read", encoding="ascii")
    return {"pages": read.page_count, "chars": read.text_chars}


def as_it_is(path: Path) -> None:
    """What was read has no output to check."""
