"""Which windows to wake because their source changed: a pure decision over fingerprints and a clock.

A change wakes its window once. A wake that came to nothing, because its run was lost or killed before it took stock, is
repeated, later each time and not for ever: what counts is that the window was planned as the source is, not that somebody was
asked to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class WindowNews:
    """What the source has for one window now.

    `fingerprint` is of what has settled, `is_planned_so`: the window's plan was made from exactly what is there.
    `opens_at` is when a window that was never planned stops being the schedule's business; None: no partition for it yet.
    """

    window: str
    fingerprint: str
    is_planned: bool
    is_planned_so: bool
    has_inputs: bool
    is_being_written: bool
    opens_at: datetime | None


@dataclass(frozen=True, slots=True)
class Woken:
    """When a window was last woken for which fingerprint, and how often."""

    fingerprint: str
    at: datetime
    times: int = 1


@dataclass(frozen=True, slots=True)
class Wakes:
    """Windows to wake, what to remember, and notes. `given_up` are windows that nobody wakes any more for what is there now."""

    windows: tuple[str, ...]
    memory: Mapping[str, Woken]
    notes: tuple[str, ...]
    given_up: tuple[str, ...] = ()


def decide_wakes(
    news: Iterable[WindowNews],
    *,
    memory: Mapping[str, Woken],
    busy: Collection[str],
    now: datetime,
    wakes_max: int,
    pause_s: float,
    times_max: int,
) -> Wakes:
    """Decide one tick.

    `busy` are windows that a living run works on: it takes stock itself, or has, and is looked at afterwards.
    """
    kept: dict[str, Woken] = {}
    wakes: list[str] = []
    waiting: dict[str, list[str]] = {}
    for item in sorted(news, key=lambda found: found.window):
        last = memory.get(item.window)
        verdict = _judge(item, last, busy=busy, now=now, pause_s=pause_s, times_max=times_max)
        if verdict == _WAKE and len(wakes) >= wakes_max:
            verdict = _NEXT
        if last is not None and not item.is_planned_so:
            kept[item.window] = last
        if verdict == _WAKE:
            is_again = last is not None and last.fingerprint == item.fingerprint
            kept[item.window] = replace(last, at=now, times=last.times + 1) if last and is_again else Woken(item.fingerprint, now)
            wakes.append(item.window)
        elif verdict:
            waiting.setdefault(verdict, []).append(item.window)
    notes = [f"{len(names)} windows {words} (e.g. {names[0]})" for words, names in waiting.items()]
    return Wakes(tuple(wakes), kept, tuple(notes), tuple(waiting.get(_GIVEN_UP, ())))


_WAKE = "wake"
_NEXT = "wait for the next tick"
_GIVEN_UP = "were woken several times and are still not planned as their source is: look at their runs"
_QUIET = ""


def _judge(item: WindowNews, last: Woken | None, *, busy: Collection[str], now: datetime, pause_s: float, times_max: int) -> str:
    if item.is_planned_so or not (item.has_inputs or item.is_planned):
        return _QUIET
    if item.opens_at is None:
        return "have something and are not over yet"
    if item.is_being_written:
        return "have files that are still being written"
    if not item.is_planned and now < item.opens_at:
        return "are left to their schedule"
    if item.window in busy:
        return "changed and are being worked on"
    if last is None or last.fingerprint != item.fingerprint:
        return _WAKE
    if last.times >= times_max:
        return _GIVEN_UP
    is_time = (now - last.at).total_seconds() >= pause_s * 2.0 ** (last.times - 1)
    return _WAKE if is_time else "were woken, their run has not taken stock yet"


def parse_memory(cursor: str | None) -> dict[str, Woken]:
    """What a cursor remembers."""
    values = json.loads(cursor) if cursor else {}
    return {name: Woken(found[0], datetime.fromisoformat(found[1]), found[2]) for name, found in values.items()}


def dump_memory(memory: Mapping[str, Woken]) -> str:
    """The cursor's text."""
    return json.dumps({name: [woken.fingerprint, woken.at.isoformat(), woken.times] for name, woken in sorted(memory.items())})
