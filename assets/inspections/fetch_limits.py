"""The limits of fetching, as configured."""

from __future__ import annotations

from assets.fetch.model import FetchLimits
from resources.config_inspections import InspectionsConfig


def limits_of(config: InspectionsConfig) -> FetchLimits:
    """How much, how long and from where content is taken."""
    fetch = config.fetch
    return FetchLimits(
        max_bytes=int(fetch.max_mb * 1_000_000),
        connect_s=fetch.connect_s,
        read_s=fetch.read_s,
        total_s=fetch.total_s,
        redirects_max=fetch.redirects,
        retry_after_max_s=fetch.retry_after_max_s,
        folders=tuple(config.resolve(folder) for folder in fetch.folders),
        root=config.root,
    )
