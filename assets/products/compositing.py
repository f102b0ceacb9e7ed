"""Composites: one value out of the scenes that overlap at a pixel.

All arithmetic is wide (float64 sums), so that no dtype overflows; rounding to the product's dtype comes last and once. Every
method but the median works as a stream: one scene at a time, memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from assets.products.reading import Values


class Composite(Protocol):
    """Takes scenes in the product's order and gives one value per band and pixel."""

    def add(self, values: Values, rank: Values | None = None, /) -> bool:
        """Take a scene, `(band, y, x)`, NaN where absent, and `rank` `(y, x)`, which highest and lowest compare.

        True: no later scene can matter.
        """
        ...

    def result(self) -> Values:
        """`(band, y, x)`, NaN where no scene had a value."""
        ...


class First:
    """The first scene that has any value at a pixel gives all bands there, so that no pixel mixes bands of two scenes."""

    def __init__(self) -> None:
        self._values: Values | None = None
        self._open: Values | None = None

    def add(self, values: Values, _rank: Values | None = None) -> bool:
        present: Values = np.asarray(~np.isnan(values).all(axis=0))
        if self._values is None or self._open is None:
            self._values, self._open = values.copy(), ~present
        else:
            taken = present & self._open
            self._values = _widened(self._values, values)
            self._values[:, taken] = values[:, taken]
            self._open &= ~present
        return not self._open.any()

    def result(self) -> Values:
        assert self._values is not None
        return self._values


class Mean:
    """The mean of the values that are there, band by band."""

    def __init__(self) -> None:
        self._sum: Values | None = None
        self._count: Values | None = None

    def add(self, values: Values, _rank: Values | None = None) -> bool:
        if self._sum is None or self._count is None:
            self._sum, self._count = np.zeros(values.shape, np.float64), np.zeros(values.shape, np.int64)
        present = ~np.isnan(values)
        np.add(self._sum, values, out=self._sum, where=present)
        self._count += present
        return False

    def result(self) -> Values:
        assert self._sum is not None
        assert self._count is not None
        mean: Values = np.divide(self._sum, self._count, out=np.full(self._sum.shape, np.nan), where=self._count > 0)
        return mean


class Extreme:
    """The least or greatest value, band by band."""

    def __init__(self, better: Callable[[Values, Values], Values]) -> None:
        self._better = better
        self._values: Values | None = None

    def add(self, values: Values, _rank: Values | None = None) -> bool:
        self._values = values.copy() if self._values is None else self._better(self._values, values)
        return False

    def result(self) -> Values:
        assert self._values is not None
        return self._values


class Ranked:
    """All bands of the scene whose ranking band is highest (or lowest) at a pixel; the earlier scene where they are equal."""

    def __init__(self, *, highest: bool) -> None:
        self._sign = 1.0 if highest else -1.0
        self._values: Values | None = None
        self._rank: Values | None = None

    def add(self, values: Values, rank: Values | None = None) -> bool:
        assert rank is not None
        known = np.where(np.isnan(rank) | np.isnan(values).all(axis=0), -np.inf, self._sign * rank)
        if self._values is None or self._rank is None:
            self._values, self._rank = np.full_like(values, np.nan), np.full(rank.shape, -np.inf, dtype=rank.dtype)
        better = known > self._rank
        self._values = _widened(self._values, values)
        self._values[:, better] = values[:, better]
        self._rank = np.where(better, known, self._rank)
        return False

    def result(self) -> Values:
        assert self._values is not None
        return self._values


class Median:
    """The middle value, band by band; the mean of the middle two where their number is even. Keeps all scenes of its block."""

    def __init__(self) -> None:
        self._stack: list[Values] = []

    def add(self, values: Values, _rank: Values | None = None) -> bool:
        self._stack.append(values)
        return False

    def result(self) -> Values:
        stack = np.sort(np.stack(self._stack), axis=0)  # NaN sorts last
        count = (~np.isnan(stack)).sum(axis=0)
        low = np.take_along_axis(stack, np.maximum((count - 1) // 2, 0)[None], axis=0)[0].astype(np.float64)
        high = np.take_along_axis(stack, np.minimum(count // 2, len(stack) - 1)[None], axis=0)[0]
        return np.where(count > 0, (low + high) / 2, np.nan)


def _widened(values: Values, other: Values) -> Values:
    return values.astype(np.promote_types(values.dtype, other.dtype), copy=False)


def composite(method: str) -> Composite:
    """An empty composite of that method. `last` is `first` over the scenes in reverse (see `in_reading_order`)."""
    match method:
        case "first" | "last":
            return First()
        case "mean":
            return Mean()
        case "median":
            return Median()
        case "min":
            return Extreme(np.fmin)
        case "max":
            return Extreme(np.fmax)
        case "highest" | "lowest":
            return Ranked(highest=method == "highest")
    raise ValueError(f"no compositing {method!r}")


def in_reading_order(method: str, count: int) -> Iterator[int]:
    """Positions of scenes in the order they are to be added."""
    yield from reversed(range(count)) if method == "last" else range(count)
