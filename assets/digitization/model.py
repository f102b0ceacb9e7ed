"""What is known of a master: format, pages, colour, resolution, capture metadata. Plain values that cross process borders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any


class Photometric(StrEnum):
    """How sample values mean colour (TIFF tag 262)."""

    MIN_IS_WHITE = "min_is_white"
    MIN_IS_BLACK = "min_is_black"
    RGB = "rgb"
    PALETTE = "palette"
    MASK = "mask"
    SEPARATED = "separated"
    YCBCR = "ycbcr"
    CIELAB = "cielab"
    ICCLAB = "icclab"
    ITULAB = "itulab"
    OTHER = "other"


class SampleKind(StrEnum):
    """What a sample's bits are (TIFF tag 339)."""

    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"
    OTHER = "other"


class Extra(StrEnum):
    """What a sample beyond the colours is (TIFF tag 338)."""

    UNSPECIFIED = "unspecified"
    ASSOCIATED = "associated_alpha"
    UNASSOCIATED = "unassociated_alpha"


@dataclass(frozen=True, slots=True)
class PageFacts:
    """One page of a master, as its directory declares it.

    `directory` is its place in the file's chain, from 1. `bits` are of one sample. `resolution` is pixels per metre across and
    down as exact fractions in text; None where the master gives none, or no unit for it.
    """

    directory: int
    width: int
    height: int
    samples: int
    bits: int
    sample_kind: SampleKind
    photometric: Photometric
    compression: str
    is_planar: bool = False
    orientation: int = 1
    extras: tuple[Extra, ...] = ()
    icc_sha256: str | None = None
    resolution: tuple[str, str] | None = None
    ink_set: int = 1

    @property
    def per_metre(self) -> tuple[Fraction, Fraction] | None:
        """Pixels per metre across and down."""
        return None if self.resolution is None else (Fraction(self.resolution[0]), Fraction(self.resolution[1]))


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """What a master is, by its bytes. `fault` says why it cannot be read at all; then it has no pages."""

    format: str
    pages: tuple[PageFacts, ...] = ()
    reduced: int = 0
    capture: Mapping[str, str] = field(default_factory=dict)
    fault_kind: str | None = None
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = asdict(self)
        plain["pages"] = [asdict(page) for page in self.pages]
        plain["capture"] = dict(self.capture)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> MasterFacts:
        """The facts that `to_json` wrote."""
        pages = tuple(
            PageFacts(
                **{
                    **page,
                    "sample_kind": SampleKind(page["sample_kind"]),
                    "photometric": Photometric(page["photometric"]),
                    "extras": tuple(Extra(extra) for extra in page["extras"]),
                    "resolution": None if page["resolution"] is None else (page["resolution"][0], page["resolution"][1]),
                }
            )
            for page in plain["pages"]
        )
        return cls(
            format=plain["format"],
            pages=pages,
            reduced=plain["reduced"],
            capture=dict(plain["capture"]),
            fault_kind=plain["fault_kind"],
            fault=plain["fault"],
        )
