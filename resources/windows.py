"""Batch windows: half-open UTC intervals `[start, end)` and their keys."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from resources.config import WindowConfig

_FIXED_STEP = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
_CRON = {"hour": "0 * * * *", "day": "0 0 * * *", "week": "0 0 * * {weekday}", "month": "0 0 1 * *", "year": "0 0 1 1 *"}
_FORMAT = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "week": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """`[start, end)` in UTC, named by its start."""

    key: str
    start: datetime
    end: datetime


class WindowCalendar:
    """Tells which batch window a time belongs to. Windows are contiguous; the first begins at the configured start, floored."""

    def __init__(self, config: WindowConfig) -> None:
        self.every = config.every
        self.key_format = _FORMAT[config.every]
        self._weekday = config.start.weekday()
        self.start = self._floor(config.start)
        self.end = None if config.end is None else self._ceiling(config.end)

    @property
    def cron(self) -> str:
        """Cron line (UTC) of the window edges."""
        return _CRON[self.every].format(weekday=(self._weekday + 1) % 7)

    def window_of(self, moment: datetime) -> BatchWindow | None:
        """The window that holds `moment` (no zone: UTC); None before the first or at and after the configured end."""
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        start = self._floor(utc)
        if start < self.start or (self.end is not None and start >= self.end):
            return None
        return BatchWindow(key=start.strftime(self.key_format), start=start, end=self._next(start))

    def window(self, key: str) -> BatchWindow:
        """The window of that key. Raises `ValueError` when no window has it; not to be retried."""
        moment = datetime.strptime(key, self.key_format).replace(tzinfo=UTC)
        found = self.window_of(moment)
        if found is None or found.key != key:
            raise ValueError(f"no batch window {key!r}: windows run every {self.every} from {self.start.isoformat()}")
        return found

    def windows(self, until: datetime) -> Iterator[BatchWindow]:
        """All windows that have ended by `until`, or all up to the configured end, whichever is later to begin."""
        start = self.start
        last = self.end if self.end is not None else until
        while start < last and (self.end is not None or self._next(start) <= until):
            following = self._next(start)
            yield BatchWindow(key=start.strftime(self.key_format), start=start, end=following)
            start = following

    def begun(self, until: datetime) -> Iterator[BatchWindow]:
        """All of `windows`, and the open one."""
        yield from self.windows(until)
        found = self.open_window(until)
        if found is not None:
            yield found

    def open_window(self, moment: datetime) -> BatchWindow | None:
        """The window that holds `moment`, where `windows` does not list it yet: more may come into it."""
        return self.window_of(moment) if self.end is None else None

    def _floor(self, moment: datetime) -> datetime:
        if self.every == "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.every == "day":
            return midnight
        if self.every == "week":
            return midnight - timedelta(days=(midnight.weekday() - self._weekday) % 7)
        return midnight.replace(day=1) if self.every == "month" else midnight.replace(month=1, day=1)

    def _ceiling(self, moment: datetime) -> datetime:
        floor = self._floor(moment)
        return floor if floor == moment else self._next(floor)

    def _next(self, start: datetime) -> datetime:
        if self.every in _FIXED_STEP:
            return start + _FIXED_STEP[self.every]
        if self.every == "month":
            return start + timedelta(days=monthrange(start.year, start.month)[1])
        return start.replace(year=start.year + 1)
