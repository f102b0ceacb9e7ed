"""What `tilewright doctor` asks of a project of digitization: its JPEG 2000 encoder, its CMYK profile, its fixity periods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from resources.config_digitization import DigitizationConfig
from resources.errors import EnvironmentUnfit, ErrorKind


def digitization_questions(config: DigitizationConfig) -> Mapping[str, Callable[[], str]]:
    """Name -> question; each answers in words or raises what is wrong."""
    return {
        "masters": partial(_masters, config),
        "GDAL": _gdal,
        "CMYK profile": partial(_cmyk, config),
        "fixity": partial(_fixity, config),
    }


def _masters(config: DigitizationConfig) -> str:
    from assets.digitization.batches import list_batches, source_of

    found = list_batches(source_of(config), config.source)
    files = sum(len(batch.masters) for batch in found.batches.values())
    return f"{files} files in {len(found.batches)} batches are listed; {len(found.strangers)} beside them are no masters"


def _gdal() -> str:
    from resources.gdal_safety import registered_drivers, require_restricted_drivers

    require_restricted_drivers()
    missing = {"GTiff", "JP2OpenJPEG"} - registered_drivers()
    if missing:
        raise EnvironmentUnfit(
            f"drivers that copies are made with are not there: {', '.join(sorted(missing))}; install rasterio's own wheel",
            kind=ErrorKind.BROKEN_INSTALLATION,
        )
    return "reads TIFF and writes JPEG 2000; drivers that follow names or addresses are off"


def _cmyk(config: DigitizationConfig) -> str:
    if config.cmyk_profile is None:
        return "none configured: CMYK masters without a profile of their own are refused"
    from assets.digitization.copies import copy_settings
    from assets.digitization.icc import cmyk_to_srgb

    digest = copy_settings(config).cmyk_profile_sha256 or ""
    cmyk_to_srgb(config.cmyk_profile.read_bytes())
    return f"{config.cmyk_profile}: LittleCMS can convert through it, sha256 {digest[:12]}..."


def _fixity(config: DigitizationConfig) -> str:
    is_on = config.fixity.schedule or config.autostart
    when = "read by the daily schedule" if is_on else "not read by itself: set fixity.schedule, or run the job fixity_period"
    return f"{config.fixity.scope} within each {config.fixity.every}, {when}"
