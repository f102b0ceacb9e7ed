"""Inspection reports as PDFs: of text with a table of findings, scanned, encrypted. The same call gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fpdf import FPDF
from fpdf.enums import XPos, YPos
from PIL import Image, ImageDraw

_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
_ROW_MM = 7
_LABEL_MM = 60
_WIDTH_MM = 190


def report_pdf(
    facts: Mapping[str, str],
    *,
    findings: Sequence[Mapping[str, str]] = (),
    title: str = "Inspection report",
    password: str | None = None,
    pages: int = 1,
) -> bytes:
    """A report that shows `facts` (label and value on a line each), and a table of `findings` by their names as headers.

    `pages`: as many at least. With `password` it is encrypted. Text must be Latin-1. Returns the PDF; nothing is written.
    """
    pdf = _blank()
    if password is not None:
        pdf.set_encryption(owner_password=f"{password} of the owner", user_password=password)
    pdf.add_page()
    pdf.set_font("helvetica", "B", 16)
    pdf.cell(0, 12, title, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    pdf.set_font("helvetica", "", 10)
    for label, value in facts.items():
        pdf.cell(_LABEL_MM, _ROW_MM, f"{label}:")
        pdf.cell(0, _ROW_MM, value, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    if findings:
        _add_table(pdf, findings)
    for _ in range(1, pages):
        pdf.add_page()
    return bytes(pdf.output())


def scanned_pdf(words: str = "Inspection report") -> bytes:
    """A report that is a picture of its text only, as scanners make them."""
    picture = Image.new("L", (620, 877), 255)
    ImageDraw.Draw(picture).text((60, 60), words, fill=0)
    pdf = _blank()
    pdf.add_page()
    packed = io.BytesIO()
    picture.save(packed, "PNG")
    pdf.image(packed, x=0, y=0, w=210)
    return bytes(pdf.output())


def _blank() -> FPDF:
    pdf = FPDF(format="A4")
    pdf.set_creation_date(_WRITTEN)
    pdf.set_auto_page_break(True, margin=15)
    return pdf


def _add_table(pdf: FPDF, findings: Sequence[Mapping[str, str]]) -> None:
    headers = list(findings[0])
    width = _WIDTH_MM / len(headers)

    def add_row(cells: Sequence[str], style: str) -> None:
        pdf.set_font("helvetica", style, 10)
        for cell in cells:
            pdf.cell(width, _ROW_MM, cell)
        pdf.ln(_ROW_MM)

    pdf.ln(_ROW_MM)
    add_row(headers, "B")
    for row in findings:
        if pdf.will_page_break(_ROW_MM):
            pdf.add_page()
            add_row(headers, "B")
        add_row([row[header] for header in headers], "")
