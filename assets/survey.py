"""What a source holds now, window by window, told alike by every pipeline: what wakes a window, what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from resources.keys import digest_of


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the source that no window takes, or that nothing is made from, and why."""

    name: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class WindowSurvey:
    """What the source has for one window.

    `fingerprint_now` is of all that is there: a window is planned as its source is when its plan marker holds this one.
    `fingerprint_settled` is of what stands still: a change of it wakes the window. `has_inputs`: something has settled.
    `is_being_written`: something has not, and the window is left alone until it has.
    """

    fingerprint_now: str
    fingerprint_settled: str
    has_inputs: bool
    is_being_written: bool = False


def source_fingerprint(identities: Iterable[Any]) -> str:
    """Tells one state of a window's source from another: one plain value for each thing, in a stable order."""
    return digest_of(list(identities))


NOTHING = WindowSurvey(source_fingerprint(()), source_fingerprint(()), has_inputs=False)
"""What a window has that the source holds nothing for."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The whole source: each window that has something, what is left out, and how many of the things found are fit for work."""

    windows: Mapping[str, WindowSurvey] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    inputs: int = 0
    accepted: int = 0

    def of(self, window: str) -> WindowSurvey:
        """What the source has for a window, also when that is nothing."""
        return self.windows.get(window, NOTHING)
