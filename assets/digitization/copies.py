"""Access copies as units: which content is derived in which window, under which key and name, and the batch that derives them.

A content is derived once, in the window of its first capture, however many names and windows it has. What was refused at the door
is planned too, as a unit that tells its reason and can do nothing else, so that it is counted and quarantined like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.digitization.derivation import (
    DERIVATION_VERSION,
    OPERATION,
    PAGES_SUFFIX,
    CopyRequest,
    CopySettings,
    derive_copy,
    recover_copy,
    validate_copy,
)
from assets.digitization.identification import MasterLimits
from assets.digitization.masters import NOT_TAKEN_IN, Master, first_of_each
from assets.digitization.model import MasterFacts
from assets.digitization.shape import COPIES
from resources.config_digitization import DigitizationConfig
from resources.errors import ConfigurationError, ErrorKind, UnitRejected
from resources.keys import SHORT_KEY_LENGTH, digest_file, unit_key
from resources.ledger import UnitRow
from resources.ledger.facts import Capture
from resources.units import Metrics, PlannedUnit, UnitOfWork

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject

REFUSED = "refused"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def copy_settings(config: DigitizationConfig) -> CopySettings:
    """What decides copies besides masters. Raises `ConfigurationError` when the CMYK profile cannot be read."""
    found = config.derivative
    profile = None
    if config.cmyk_profile is not None:
        try:
            profile = digest_file(config.cmyk_profile)
        except OSError as error:
            raise ConfigurationError(
                f"derivative.cmyk_profile: found {str(config.cmyk_profile)!r}, which cannot be read ({error.strerror}); "
                "allowed: an ICC profile"
            ) from error
    return CopySettings(found.ratio, found.psnr_db, found.tile_px, profile)


def copy_unit(capture: Capture, settings: CopySettings) -> PlannedUnit:
    """The planned derivation of a content, by its first capture. Neither name nor window goes into the key."""
    ingredients: dict[str, Any] = {
        "operation": OPERATION,
        "version": DERIVATION_VERSION,
        "settings": settings.ingredients(),
        "destination": {},
        "inputs": capture.sha256,
    }
    key = unit_key(**ingredients)
    suffix = PAGES_SUFFIX if is_multipage(capture) else ".jp2"
    name = f"{capture.sha256[:32]}.{key[:SHORT_KEY_LENGTH]}{suffix}"
    return PlannedUnit(
        key=key,
        product=OPERATION,
        window=capture.window,
        output_uri=f"{COPIES}/{capture.window}/{name}",
        source=source_name(capture.batch),
        spec={**ingredients, "master": capture.uri},
    )


def is_multipage(capture: Capture) -> bool:
    """Whether a content has several pages, by the facts of its capture."""
    return len(MasterFacts.from_json(capture.facts).pages) > 1


def refused_unit(master: Master) -> PlannedUnit:
    """The unit of a file that was not taken in. Another file under its name is another unit."""
    ingredients: dict[str, Any] = {
        "operation": OPERATION,
        "version": REFUSED,
        "settings": {},
        "destination": {"uri": master.uri},
        "inputs": {
            "found": master.found_sha256,
            "expected": master.expected_sha256,
            "kind": master.kind,
            "reason": master.reason,
        },
    }
    key = unit_key(**ingredients)
    window = master.window or ""
    return PlannedUnit(
        key=key,
        product=OPERATION,
        window=window,
        output_uri=f"{COPIES}/{window}/{REFUSED}.{key[:SHORT_KEY_LENGTH]}.jp2",
        source=source_name(master.batch),
        spec={**ingredients, "master": master.uri},
    )


def source_name(batch: str) -> str:
    """What the breaker calls a batch."""
    return _UNSAFE.sub("_", batch)[:60] or "masters"


def refuse(kind: ErrorKind, reason: str, path: Path) -> Metrics:  # noqa: ARG001 - every work function takes a path
    """The work of a file that was not taken in. Always raises `UnitRejected`."""
    raise UnitRejected(reason, kind=kind)


def nothing_made(path: Path) -> None:
    """Nothing is ever made of a file that was not taken in, so whatever lies there is not its copy. Always raises."""
    raise UnitRejected(f"{path.name}: nothing is made of a file that was not taken in", kind=ErrorKind.INVALID_OUTPUT)


def window_units(project: DigitizationProject, window: str, masters: Iterable[Master]) -> list[PlannedUnit]:
    """Everything that the window should have derived: contents first captured in it, then what was refused of its batches."""
    ledger = project.ledger
    contents = dict.fromkeys(capture.sha256 for capture in ledger.captures(window=window))
    first = first_of_each(ledger.captures(sha256s=contents))
    mine = [first[sha256] for sha256 in contents if first[sha256].window == window]
    units = [copy_unit(capture, project.copy_settings) for capture in mine]
    return units + [refused_unit(master) for master in masters if master.window == window and master.verdict in NOT_TAKEN_IN]


def copy_states(project: DigitizationProject, captures: Iterable[Capture]) -> dict[str, str]:
    """How the copy of each content stands under the settings of now, by digest; one that is in no plan is left out."""
    keys = {copy_unit(capture, project.copy_settings).key: capture.sha256 for capture in captures}
    return {keys[row.key]: row.state.value for row in project.ledger.units(keys=keys)}


class CopyWorks:
    """The work of planned copies, from their captures."""

    def __init__(self, project: DigitizationProject) -> None:
        self._project = project
        self._settings = project.copy_settings
        limits = project.config.limits
        self._limits = MasterLimits(limits.max_pixels, limits.max_pages, limits.max_expansion)

    def of(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units. One whose settings no longer give its key is left out: the plan has moved on."""
        specs = {row.key: row.spec for row in rows}
        wanted = [spec["inputs"] for spec in specs.values() if spec["version"] != REFUSED]
        captures: dict[str, list[Capture]] = {}
        for capture in self._project.ledger.captures(sha256s=wanted):
            captures.setdefault(capture.sha256, []).append(capture)
        for row in rows:
            spec = specs[row.key]
            if spec["version"] == REFUSED:
                found = spec["inputs"]
                kind = ErrorKind(found["kind"])
                yield UnitOfWork(row.as_planned(), partial(refuse, kind, found["reason"]), nothing_made)
                continue
            same = captures.get(spec["inputs"], [])
            if same and copy_unit(same[0], self._settings).key == row.key:
                yield self._work(row, same)

    def _work(self, row: UnitRow, same: Sequence[Capture]) -> UnitOfWork:
        config = self._project.config
        request = CopyRequest(
            unit_key=row.key,
            sha256=same[0].sha256,
            source=self._project.source,
            masters=tuple(capture.uri for capture in same),
            is_multipage=is_multipage(same[0]),
            settings=self._settings,
            limits=self._limits,
            cmyk_profile=config.cmyk_profile,
            gdal_cache_mb=config.executor.gdal_cache_mb,
        )
        return UnitOfWork(
            row.as_planned(), partial(derive_copy, request), partial(validate_copy, request), partial(recover_copy, request)
        )
