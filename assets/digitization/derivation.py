"""A master's access copy: JPEG 2000, lossless unless settings say otherwise, one file, or a folder with one file for each page.

The copy is made from the bytes that were captured or not at all: the master is hashed before it is opened, and must stand still
until it is done. The digest of the decoded pixels goes into the copy, and a lossless copy is decoded again and compared with it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rasterio.io import DatasetReader

from assets.digitization.codestream import (
    Encoding,
    blocks,
    decompositions,
    encode,
    opened_copy,
    pixels_sha256,
    psnr_db,
    scratch_picture,
)
from assets.digitization.identification import DEFAULT_LIMITS, MasterLimits, identify
from assets.digitization.jp2_boxes import Jp2Header, read_facts, write_jp2
from assets.digitization.model import PageFacts
from assets.digitization.rendition import Rendition, plan_rendition
from assets.digitization.tiff_directory import Directory, TiffFile
from assets.sources.source import Held, Source
from resources.errors import ErrorKind, TransientError, UnitRejected
from resources.gdal_safety import safe_env
from resources.units import Metrics

OPERATION = "derivative:jp2"
DERIVATION_VERSION = "1"
"""Part of every derivation's key: raise it when the bytes of a copy change under equal settings."""

PAGES_SUFFIX = ".pages"
_RATIO_MOST, _RATIO_LEAST = 400.0, 1.5
_PSNR_STEPS = 6


@dataclass(frozen=True, slots=True)
class CopySettings:
    """What decides the bytes of a copy besides the master. `ratio` or `psnr_db` make it lossy; neither: lossless."""

    ratio: float | None = None
    psnr_db: float | None = None
    tile_px: int = 1024
    cmyk_profile_sha256: str | None = None

    @property
    def is_lossless(self) -> bool:
        """Whether decoded copies equal their masters."""
        return self.ratio is None and self.psnr_db is None

    def ingredients(self) -> dict[str, Any]:
        """The settings as they go into the unit key."""
        return {
            "ratio": self.ratio,
            "psnr_db": self.psnr_db,
            "tile_px": self.tile_px,
            "cmyk_profile": self.cmyk_profile_sha256,
        }


LOSSLESS = CopySettings()


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """What to derive. `masters` are uris in `source` under which the captured bytes may lie; the first with them is used."""

    unit_key: str
    sha256: str
    source: Source
    masters: tuple[str, ...]
    is_multipage: bool
    settings: CopySettings = LOSSLESS
    limits: MasterLimits = DEFAULT_LIMITS
    cmyk_profile: Path | None = None
    gdal_cache_mb: int = 64


def derive_copy(request: CopyRequest, path: Path) -> Metrics:
    """Write the copy to `path`: a file, or a folder of pages for a master with several. Returns what was done to each page.

    Raises `UnitRejected` (MASTER_CHANGED, UNSUPPORTED_COLOUR, UNSUPPORTED_DTYPE, CORRUPT_INPUT, TOO_LARGE...; no retry) and
    `TransientError` (INPUT_CHANGED, retry). After a crash: a staging name and scratch names beside it, which the sweep removes.
    """
    # scratch names begin like the staging name, so that the sweep knows them
    with safe_env(request.gdal_cache_mb), ExitStack() as context:
        held = _captured_master(request, path.with_name(f"{path.name}.scratch.master"), context)
        with open(held.path, "rb") as stream:
            facts = identify(stream, request.limits)
            directories = [] if facts.fault_kind is not None else TiffFile(stream).pages(pages_most=request.limits.max_pages)
        if facts.fault_kind is not None:
            raise UnitRejected(facts.fault, kind=ErrorKind(facts.fault_kind))
        if len(facts.pages) == 0 or (len(facts.pages) > 1) != request.is_multipage:
            raise UnitRejected(
                f"pages: found {len(facts.pages)}; planned: {'several' if request.is_multipage else 'one'}",
                kind=ErrorKind.CONTRACT_VIOLATED,
            )
        if request.is_multipage:
            path.mkdir()
        pages = []
        for number, page in enumerate(facts.pages, start=1):
            target = path / page_name(number) if request.is_multipage else path
            pages.append(_derive_page(request, held.path, page, directories[page.directory - 1], target, number))
        held.require_still()
        return _metrics(request, pages, reduced=facts.reduced)


def page_name(number: int) -> str:
    """File name of a page within the folder of a copy."""
    return f"{number:04d}.jp2"


def _metrics(request: CopyRequest, pages: list[dict[str, Any]], *, reduced: int) -> dict[str, Any]:
    statements = list(dict.fromkeys(text for page in pages for text in page["statements"]))
    if reduced:
        statements.append(f"{reduced} reduced renditions within the master left out")
    return {"master_sha256": request.sha256, "lossless": request.settings.is_lossless, "statements": statements, "pages": pages}


def _captured_master(request: CopyRequest, scratch: Path, context: ExitStack) -> Held:
    """The first master that holds the captured bytes, for as long as `context` lasts."""
    found: list[str] = []
    for master in request.masters:
        with ExitStack() as attempt:
            try:
                held = attempt.enter_context(request.source.held(master, scratch))
            except FileNotFoundError:
                continue
            if held.sha256 == request.sha256:
                context.enter_context(attempt.pop_all())
                return held
            found.append(f"{master} with sha256 {held.sha256}")
    if not found:
        names = ", ".join(request.masters)
        raise TransientError(f"{names}: the master is not there now; it was when it was captured", kind=ErrorKind.INPUT_CHANGED)
    raise UnitRejected(
        f"master: found {'; '.join(found)}; captured was sha256 {request.sha256}: its bytes were changed after capture. "
        "Put the captured file back and replay, or deliver the new one under another name",
        kind=ErrorKind.MASTER_CHANGED,
    )


def _derive_page(
    request: CopyRequest, master: Path, page: PageFacts, directory: Directory, target: Path, number: int
) -> dict[str, Any]:
    profile = request.cmyk_profile.read_bytes() if request.cmyk_profile is not None else b""
    rendition = plan_rendition(page, directory, cmyk_profile=profile)
    # never inside a folder that is promoted
    beside = target.parent.with_name(f"{target.parent.name}.{target.name}") if request.is_multipage else target
    with scratch_picture(master, page, rendition, beside.with_name(f"{beside.name}.scratch.tif")) as picture:
        digest = pixels_sha256(picture)
        facts: dict[str, Any] = {
            "page": number,
            "width": rendition.width,
            "height": rendition.height,
            "components": rendition.components,
            "bits": rendition.bits,
            "levels": decompositions(rendition.width, rendition.height),
            "pixels_sha256": digest,
            "icc_sha256": page.icc_sha256 if rendition.icc else None,
            "statements": list(rendition.statements),
        }

        def finish(codestream: BinaryIO, size_bytes: int, said: dict[str, Any]) -> None:
            facts.update(said)
            header = Jp2Header(
                rendition.width,
                rendition.height,
                rendition.colours,
                rendition.extra,
                rendition.bits,
                rendition.icc,
                _turned(page),
            )
            inside = {
                "unit_key": request.unit_key,
                "operation": f"{OPERATION}/{DERIVATION_VERSION}",
                "master_sha256": request.sha256,
                "lossless": request.settings.is_lossless,
                "page": facts,
            }
            with open(target, "wb") as stream:
                write_jp2(stream, header, inside, codestream, codestream_bytes=size_bytes)

        _encode(picture, rendition, request.settings, beside.with_name(f"{beside.name}.scratch.j2k"), finish)
        return facts


Finish = Callable[[BinaryIO, int, dict[str, Any]], None]


def _encode(picture: DatasetReader, rendition: Rendition, settings: CopySettings, scratch: Path, finish: Finish) -> None:
    try:
        said = _chosen(picture, scratch, rendition, settings)
        with open(scratch, "rb") as codestream:
            finish(codestream, os.fstat(codestream.fileno()).st_size, said)
    finally:
        scratch.unlink(missing_ok=True)


def _chosen(picture: DatasetReader, target: Path, rendition: Rendition, settings: CopySettings) -> dict[str, Any]:
    """Encode as the settings say, and tell of it. For a PSNR: the smallest codestream of a fixed ladder that reaches it."""
    if settings.psnr_db is None:
        encode(picture, target, rendition, Encoding(settings.ratio, settings.tile_px))
        return {} if settings.ratio is None else {"ratio": settings.ratio, "psnr_db": _measured(picture, target, rendition)}
    low, high = math.log(_RATIO_LEAST), math.log(_RATIO_MOST)
    best: float | None = None
    for _ in range(_PSNR_STEPS):
        middle = (low + high) / 2
        ratio = round(math.exp(middle), 2)
        encode(picture, target, rendition, Encoding(ratio, settings.tile_px))
        if _reaches(_measured(picture, target, rendition), settings.psnr_db):
            best, low = ratio, middle
        else:
            high = middle
    encode(picture, target, rendition, Encoding(best, settings.tile_px))
    return {"ratio": best, "psnr_db": _measured(picture, target, rendition)}


def _measured(picture: DatasetReader, target: Path, rendition: Rendition) -> float | None:
    """Decibels to two places; None stands for equal pixels."""
    with opened_copy(target) as copy:
        found = psnr_db(picture, copy, bits=rendition.bits)
    return None if math.isinf(found) else round(found, 2)


def _reaches(found: float | None, wanted: float) -> bool:
    return found is None or found >= wanted


def _turned(page: PageFacts) -> Any:
    resolution = page.per_metre
    return resolution[::-1] if resolution is not None and page.orientation >= 5 else resolution


def validate_copy(request: CopyRequest, path: Path) -> None:
    """Open a staged copy again and decode every pixel; a lossless one must give the master's.

    Raises `UnitRejected` (INVALID_OUTPUT, no retry) naming what differs.
    """
    names = sorted(item.name for item in path.iterdir()) if path.is_dir() else []
    if path.is_dir() != request.is_multipage or names != [page_name(number) for number in range(1, len(names) + 1)]:
        raise _invalid(f"pages: found {names}; allowed: {'pages in a row' if request.is_multipage else 'one file'}")
    with safe_env(request.gdal_cache_mb):
        for number, file in enumerate([path / name for name in names] or [path], start=1):
            try:
                _validate_page(request, file, number)
            except UnitRejected as error:
                raise _invalid(f"page {number}: the copy cannot be read back: {error.message}") from error


def _validate_page(request: CopyRequest, file: Path, number: int) -> None:
    facts = read_facts(file) or {}
    page = facts.get("page") or {}
    for name, value in {"unit_key": request.unit_key, "master_sha256": request.sha256}.items():
        if facts.get(name) != value:
            raise _invalid(f"{name}: wrote {facts.get(name)!r}; asked for {value!r}")
    with opened_copy(file) as copy:
        found = (copy.width, copy.height, copy.count, copy.dtypes[0])
        wanted = (page.get("width"), page.get("height"), page.get("components"), "uint8" if page.get("bits") == 8 else "uint16")
        if found != wanted or page.get("page") != number:
            raise _invalid(f"picture: wrote {found}; asked for {wanted}")
        if request.settings.is_lossless:
            digest = pixels_sha256(copy)
            if digest != page.get("pixels_sha256"):
                raise _invalid(f"pixels: sha256 {digest}; the master's are {page.get('pixels_sha256')}")
        else:
            for _ in blocks(copy):
                pass


def recover_copy(request: CopyRequest, path: Path) -> Metrics:
    """The metrics that `derive_copy` returned, read back from a copy that was promoted but never recorded."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return _metrics(request, [(read_facts(file) or {}).get("page", {}) for file in files], reduced=0)


def _invalid(message: str) -> UnitRejected:
    return UnitRejected(message, kind=ErrorKind.INVALID_OUTPUT)
