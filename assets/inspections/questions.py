"""What `tilewright doctor` asks of a project of inspections."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from resources.config_inspections import InspectionsConfig


def inspections_questions(config: InspectionsConfig) -> Mapping[str, Callable[[], str]]:  # noqa: ARG001 - every pipeline is asked alike
    """Name -> question; each answers in words or raises what is wrong."""
    return {}
