"""What every batch handed to the engine has: its asset, the partitions of the run, and what holds unless it says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from resources.ledger import UnitRow
from resources.units import UnitOfWork


class PartitionBatch:
    """Partitions of one asset whose outputs are written once: a name carries its key, a row its natural key."""

    asset: str
    """Name of the asset in the ledger."""
    replaces: bool = False
    """True where outputs keep one name and are overwritten whole."""

    def __init__(self, partitions: Sequence[str]) -> None:
        self.partitions: Sequence[str] = tuple(partitions)

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units. One that the inputs no longer give is left out: the plan has moved on."""
        raise NotImplementedError

    def replan(self) -> None:
        """Nothing to plan again: no unit can be made without an input that was rejected."""


class Stock(Protocol):
    """What a window holds; whether its manifest was brought up to date just now."""

    @property
    def is_manifest_made(self) -> bool: ...


StockOf = TypeVar("StockOf", bound=Stock)


class StockedBatch(PartitionBatch, Generic[StockOf]):
    """A batch for which stock was taken first. `stock`: what each window of the run holds."""

    def __init__(self, partitions: Sequence[str], stock: Mapping[str, StockOf]) -> None:
        super().__init__(partitions)
        self.stock: dict[str, StockOf] = dict(stock)

    @property
    def refreshed(self) -> list[str]:
        """Windows whose manifest was written anew when stock was taken."""
        return [window for window, stock in self.stock.items() if stock.is_manifest_made]
