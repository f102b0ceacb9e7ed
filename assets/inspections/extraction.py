"""What a PDF shows: number of pages, and its text as lines of cells by their place on the page. By PDFium, in a bounded worker.

PDFium (the reader of Chromium, BSD and Apache licences) opened, of hostile files, all that pure Python readers did and more, at a
fraction of the time, and fails in one way only. Bombs are looked for before it sees a file (`extraction_limits`). Text comes out
as characters with places; lines and cells are made of them here, so that equal bytes give equal lines whatever the locale.
"""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pypdfium2
import pypdfium2.raw as pdfium

from assets.inspections.extraction_limits import check_streams
from resources.errors import ErrorKind, UnitRejected

_HEAD_BYTES = 1024
"""A PDF's header stands within its first bytes, and not always first (PDF 1.7, appendix H, 3.4.1)."""
_WORD_GAP = 0.18
_CELL_GAP = 1.2
"""Gaps in heights of the characters beside them."""
_EMPTY_TREE = re.compile(rb"/Count\s+0\b")
_A_PAGE = re.compile(rb"/Type\s*/Page\b")


@dataclass(frozen=True, slots=True)
class TextLimits:
    """How much of a report is read. Sizes in bytes."""

    pages_max: int = 2_000
    chars_max: int = 2_000_000
    stream_bytes_max: int = 128 << 20
    text_chars_min: int = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """Words that stand together on a line; `left` and `right` in points from the page's left edge as it is shown."""

    text: str
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Line:
    """The cells of one line, left to right. Pages count from 0."""

    page: int
    cells: tuple[Cell, ...]

    @property
    def text(self) -> str:
        """The whole line."""
        return " ".join(cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True)
class PdfText:
    """A PDF's pages and lines, top to bottom. `text_chars` counts characters that are no spaces."""

    page_count: int
    lines: tuple[Line, ...]
    text_chars: int


def read_pdf(path: Path, limits: TextLimits) -> PdfText:
    """Read the text of a PDF file.

    Raises `UnitRejected`: EMPTY_FILE, NOT_A_PDF, ENCRYPTED, UNREADABLE, CORRUPT_INPUT, ZERO_PAGES, TOO_LARGE, NO_TEXT. A retry
    gives the same. Raises `OSError` when the file cannot be read at all.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head.strip(b"\0 \t\r\n"):
        raise UnitRejected("the report is empty: no bytes, or blanks only; have it delivered again", kind=ErrorKind.EMPTY_FILE)
    if b"%PDF-" not in head:
        raise UnitRejected(
            f"the report is no PDF: it begins with {head[:24]!r}; have the report itself delivered", kind=ErrorKind.NOT_A_PDF
        )
    check_streams(path, stream_bytes_max=limits.stream_bytes_max)
    document = _opened(path)
    try:
        return _read(document, limits)
    except pypdfium2.PdfiumError as error:
        raise UnitRejected(f"a page of the report cannot be read: {error}", kind=ErrorKind.CORRUPT_INPUT) from error
    finally:
        document.close()


def _opened(path: Path) -> pypdfium2.PdfDocument:
    # PDFium keeps the last error of the process and does not set one on every failure: a report must not inherit the verdict of
    # the one before. Refusing this leaves a known one
    pdfium.FPDF_LoadMemDocument(b"-", 1, None)
    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if error.err_code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            raise UnitRejected(
                "the report is encrypted and needs a password; have it delivered without one", kind=ErrorKind.ENCRYPTED
            ) from error
        if _has_no_pages(path):
            raise _zero_pages() from error
        raise UnitRejected(
            f"the report cannot be opened as a PDF: {error}; have it delivered again", kind=ErrorKind.UNREADABLE
        ) from error


def _has_no_pages(path: Path) -> bool:
    """Whether a file that PDFium refuses says plainly that it has no pages: it takes such a page tree for a broken one."""
    content = path.read_bytes()
    return _EMPTY_TREE.search(content) is not None and _A_PAGE.search(content) is None


def _zero_pages() -> UnitRejected:
    return UnitRejected("the report has no pages; have it delivered again", kind=ErrorKind.ZERO_PAGES)


def _read(document: pypdfium2.PdfDocument, limits: TextLimits) -> PdfText:
    pages = len(document)
    if pages == 0:
        raise _zero_pages()
    if pages > limits.pages_max:
        raise _too_large(f"{pages:,} pages", f"extraction.max_pages = {limits.pages_max:,}")
    lines: list[Line] = []
    chars, pictures = 0, 0
    for at in range(pages):
        page = document[at]
        textpage = page.get_textpage()
        try:
            chars += textpage.count_chars()
            if chars > limits.chars_max:
                raise _too_large(f"more than {limits.chars_max:,} characters", "extraction.max_chars")
            found = list(_characters(textpage, page.get_rotation()))
            lines += _lines(at, found)
            pictures += not found and any(page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=3))
        finally:
            textpage.close()
            page.close()
    text_chars = sum(not char.isspace() for line in lines for char in line.text)
    if text_chars < limits.text_chars_min:
        what = "it is scanned: its pages are pictures" if pictures else "its pages are blank, or their text has no characters"
        raise UnitRejected(
            f"the report has no text to read ({text_chars} characters, extraction.min_text_chars asks for "
            f"{limits.text_chars_min}); {what}. Have its text recognised and deliver that",
            kind=ErrorKind.NO_TEXT,
        )
    return PdfText(pages, tuple(lines), text_chars)


def _too_large(found: str, allowed: str) -> UnitRejected:
    return UnitRejected(f"the report has {found}; allowed: {allowed}", kind=ErrorKind.TOO_LARGE)


@dataclass(frozen=True, slots=True)
class _Character:
    text: str
    left: float
    right: float
    base: float
    height: float
    is_after_space: bool


def _characters(textpage: pypdfium2.PdfTextPage, rotation: int) -> Iterator[_Character]:
    """The characters that the page shows, turned as it is shown. Spaces are left out; the next one says that there was one."""
    is_after_space = False
    box, x, y = pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    for at in range(textpage.count_chars()):
        code = pdfium.FPDFText_GetUnicode(textpage, at)
        if not 32 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            continue
        char = chr(code)
        if char.isspace():
            is_after_space = True
            continue
        if unicodedata.category(char) in ("Cc", "Cf", "Cn"):
            continue
        if not pdfium.FPDFText_GetLooseCharBox(textpage, at, box) or not pdfium.FPDFText_GetCharOrigin(textpage, at, x, y):
            continue
        left, right, low, high, base = box.left, box.right, box.bottom, box.top, y.value
        if rotation == 90:
            left, right, low, high, base = box.bottom, box.top, -box.right, -box.left, -x.value
        elif rotation == 180:
            left, right, low, high, base = -box.right, -box.left, -box.top, -box.bottom, -y.value
        elif rotation == 270:
            left, right, low, high, base = -box.top, -box.bottom, box.left, box.right, x.value
        yield _Character(char, left, right, base, max(abs(high - low), 0.01), is_after_space)
        is_after_space = False


def _lines(page: int, characters: list[_Character]) -> Iterator[Line]:
    """Characters on one base line, top to bottom; the order in which they were drawn decides between equals."""
    row: list[_Character] = []
    for one in sorted(characters, key=lambda char: -char.base):
        if row and row[0].base - one.base > 0.4 * min(row[0].height, one.height):
            yield _line(page, row)
            row = []
        row.append(one)
    if row:
        yield _line(page, row)


def _line(page: int, row: list[_Character]) -> Line:
    row = sorted(row, key=lambda char: char.left)
    cells: list[Cell] = []
    text, start = row[0].text, row[0].left
    for before, one in pairwise(row):
        gap = (one.left - before.right) / min(before.height, one.height)
        if gap > _CELL_GAP:
            cells.append(Cell(unicodedata.normalize("NFKC", text), start, before.right))
            text, start = one.text, one.left
        else:
            text += f" {one.text}" if gap > _WORD_GAP or one.is_after_space else one.text
    cells.append(Cell(unicodedata.normalize("NFKC", text), start, row[-1].right))
    return Line(page, tuple(cells))
