"""What rebuilding a lost ledger came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RebuiltAsset:
    """One asset's units: `outputs` exist, `restored` are COMPLETE again, `known` were so already, `absent` have no output."""

    asset: str
    outputs: int
    restored: int
    known: int
    absent: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What rebuilding found, and every output that was not believed."""

    assets: tuple[RebuiltAsset, ...]
    unverified: tuple[str, ...]
