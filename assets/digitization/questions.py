"""What `tilewright doctor` asks of a project of digitization."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from resources.config_digitization import DigitizationConfig


def digitization_questions(config: DigitizationConfig) -> Mapping[str, Callable[[], str]]:  # noqa: ARG001 - every pipeline is asked alike
    """Name -> question; each answers in words or raises what is wrong."""
    return {}
