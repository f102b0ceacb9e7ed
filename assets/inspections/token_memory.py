"""Version tokens between two runs: asked for now and then, so that a corrected report wakes its window and no source is pestered.

Lives with its process. A token that was asked for before its window was last planned says nothing any more: the run asked later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assets.inspections.listing import ListedReport
from assets.inspections.planning import Answer, Token
from assets.inspections.stock import ask_tokens

if TYPE_CHECKING:
    from assets.inspections.project import InspectionsProject

_ADDRESSES_AT_ONCE = 200
_SECONDS_AT_ONCE = 20.0


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer and when it was given."""

    token: Token
    at: datetime


class TokenMemory:
    """The answers of a project's sources. Bounded by the number of reports."""

    def __init__(self, project: InspectionsProject) -> None:
        self._project = project
        self._asked: dict[str, Asked] = {}

    def tokens(self, reports: Sequence[ListedReport], *, planned_at: Mapping[str, datetime], now: datetime) -> dict[str, Token]:
        """The token of each report, by unit key. Files are looked at each time; of other addresses, those whose answer is older
        than `source.recheck_minutes` are asked, the oldest first, some at a time; NOT_ASKED stands for the rest.

        `planned_at`: when each window was last planned.
        """
        every = timedelta(minutes=self._project.config.source.recheck_minutes)
        found: dict[str, Token] = dict(ask_tokens(self._project, [report for report in reports if report.is_local]))
        distant = [report for report in reports if not report.is_local]
        self._forget({report.key for report in distant})
        self._ask(sorted(self._due(distant, before=now - every), key=self._age), now=now)
        for report in distant:
            asked = self._asked.get(report.key)
            planned = planned_at.get(report.window)
            is_news = asked is not None and (planned is None or asked.at > planned)
            found[report.key] = asked.token if asked is not None and is_news else Answer.NOT_ASKED
        return found

    def _due(self, reports: Iterable[ListedReport], *, before: datetime) -> Iterable[ListedReport]:
        return (report for report in reports if (asked := self._asked.get(report.key)) is None or asked.at <= before)

    def _age(self, report: ListedReport) -> tuple[bool, datetime | None, str]:
        asked = self._asked.get(report.key)
        return (False, None, report.key) if asked is None else (True, asked.at, report.key)

    def _ask(self, reports: Sequence[ListedReport], *, now: datetime) -> None:
        until = time.monotonic() + _SECONDS_AT_ONCE
        for key, token in ask_tokens(self._project, reports[:_ADDRESSES_AT_ONCE]):
            self._asked[key] = Asked(token, now)
            if time.monotonic() > until:
                return

    def _forget(self, living: set[str]) -> None:
        for key in self._asked.keys() - living:
            del self._asked[key]
