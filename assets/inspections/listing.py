"""What the source says: which reports there are, of which site and period and in which batch window; what cannot be used.

A report belongs to one window: the first that lists its address for its site. What cannot be used is left out by name and stops
nothing else. A table that is unreadable or still being written says nothing: its windows keep the plan they have.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import translate
from pathlib import Path
from urllib.parse import unquote_to_bytes

from assets.fetch.index import file_name, list_index
from assets.fetch.model import FetchLimits
from assets.fetch.uris import WEB, host_of, local_path, redacted, scheme_of, shown_uri
from assets.inspections.periods import ALLOWED, normal_period, period_start
from assets.inspections.source_uris import canonical_uri, report_key
from assets.inspections.tables import BadRow, TableUnreadable, read_table
from assets.survey import LeftOut
from resources.config_inspections import InspectionsConfig
from resources.errors import EnvironmentUnfit, ErrorKind, UnitRejected
from resources.keys import SHORT_KEY_LENGTH
from resources.windows import WindowCalendar

BAD_ROW, BAD_TABLE, BEING_WRITTEN, NO_REPORT = "BAD_ROW", "BAD_TABLE", "BEING_WRITTEN", "NO_REPORT"
UNKNOWN_WINDOW, IN_FUTURE, CONFLICT = "UNKNOWN_WINDOW", "IN_FUTURE", "CONFLICT"
LISTED_TWICE, LISTED_ELSEWHERE = "LISTED_TWICE", "LISTED_ELSEWHERE"
_NAMED = re.compile(r"\{(site|period|window)\}")


@dataclass(frozen=True, slots=True)
class ListedReport:
    """One report that the source lists. `uri` may hold secrets; `shown` is the address without them, `place` where it says so.

    `observed_as`: under which name its content is remembered, one for each address.
    """

    key: str
    site: str
    period: str
    window: str
    uri: str = field(repr=False)
    shown: str
    observed_as: str
    place: str

    @property
    def host(self) -> str:
        """Who serves it: what the breaker watches."""
        return host_of(self.uri) or "files"

    @property
    def is_local(self) -> bool:
        """Whether its content is a file of this machine."""
        return scheme_of(self.uri) == "file"


@dataclass(frozen=True, slots=True)
class ReportListing:
    """Everything the source lists now. `silent` are windows whose tables say nothing just now; None: which, nobody knows."""

    reports: tuple[ListedReport, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    silent: frozenset[str] | None = frozenset()

    def of_window(self, window: str) -> tuple[ListedReport, ...]:
        """The reports of a window, in the order of their keys."""
        return tuple(report for report in self.reports if report.window == window)

    def is_silent(self, window: str) -> bool:
        """Whether the source says nothing about a window just now."""
        return self.silent is None or window in self.silent


def list_reports(
    config: InspectionsConfig, calendar: WindowCalendar, *, homes: Mapping[str, str], limits: FetchLimits, now: datetime
) -> ReportListing:
    """List the source. `homes`: the windows that reports belong to already, by unit key.

    Raises `EnvironmentUnfit` (SOURCE_MISSING) when it is not there, `TransientError` when it does not answer.
    """
    found = _Found(config, calendar, now=now)
    if config.source.table_names is not None:
        _read_tables(found)
    else:
        _read_index(found, limits)
    return found.listing(homes)


class _Found:
    """What was found so far."""

    def __init__(self, config: InspectionsConfig, calendar: WindowCalendar, *, now: datetime) -> None:
        self.config, self.calendar, self.now = config, calendar, now
        self.reports: list[ListedReport] = []
        self.left_out: list[LeftOut] = []
        self.silent: set[str] = set()
        self.is_all_silent = False

    def leave_out(self, name: str, verdict: str, reason: str) -> None:
        self.left_out.append(LeftOut(name, verdict, reason))

    def add(self, *, site: str, period: str, uri: str, window: str, place: str) -> None:
        """Take a report in, or say why not. `window` may be empty: then its period says where it belongs."""
        shown = redacted(uri)
        try:
            # a plain path hangs from the configuration file, like every path of a project
            root = self.config.root
            canonical = canonical_uri(uri, root=root)
            address = _path(canonical, root) if scheme_of(uri) == "file" else uri
            shown = shown_uri(address, root) if scheme_of(uri) == "file" else redacted(canonical)
            host_of(address)
        except UnitRejected as error:
            self.leave_out(shown, BAD_ROW, f"{place}: uri: {error.message}")
            return
        # one period is one, however it is spelled: of this form are output, record, pair and conflict
        period = normal_period(period, months=self.config.extraction.months)
        home = self._window(window, period, name=shown, place=place)
        if home is not None:
            key = report_key(site, canonical)
            observed_as = _observed_as(canonical, key)
            self.reports.append(ListedReport(key, site, period, home, address, shown, observed_as, place))

    def _window(self, window: str, period: str, *, name: str, place: str) -> str | None:
        if window:
            try:
                found = self.calendar.window(window)
            except ValueError:
                self.leave_out(name, UNKNOWN_WINDOW, f"{place}: window: found {window!r}; allowed: {self._known()}")
                return None
        else:
            moment = period_start(period)
            if moment is None:
                self.leave_out(name, BAD_ROW, f"{place}: period: found {period!r}; allowed: {ALLOWED}")
                return None
            within = self.calendar.window_of(moment)
            if within is None:
                words = f"{place}: period: found {period!r}, which begins in no window; allowed: {self._known()}"
                self.leave_out(name, UNKNOWN_WINDOW, words)
                return None
            found = within
        if found.start > self.now:
            self.leave_out(name, IN_FUTURE, f"{place}: batch window {found.key} has not begun")
            return None
        return found.key

    def _known(self) -> str:
        start = self.calendar.start
        return f"a {self.calendar.every} from {start:%Y-%m-%d} on, written like {start.strftime(self.calendar.key_format)}"

    def listing(self, homes: Mapping[str, str]) -> ReportListing:
        """Each report once, in the window it belongs to, in the order of keys."""
        chosen: dict[str, ListedReport] = {}
        by_key: dict[str, list[ListedReport]] = {}
        for report in self.reports:
            by_key.setdefault(report.key, []).append(report)
        for key, some in by_key.items():
            first = min(some, key=lambda one: (one.window != homes.get(key, one.window), one.window))
            if key in homes and first.window != homes[key]:
                words = f"{first.place}: it belongs to batch window {homes[key]}; another report needs another address"
                self.leave_out(first.shown, LISTED_ELSEWHERE, words)
            else:
                chosen[key] = first
            for other in some:
                if other is not first:
                    self._say_again(other, first)
        self._say_conflicts(chosen.values())
        return ReportListing(
            reports=tuple(chosen[key] for key in sorted(chosen)),
            left_out=tuple(sorted(self.left_out, key=lambda one: (one.name, one.reason))),
            silent=None if self.is_all_silent else frozenset(self.silent),
        )

    def _say_again(self, other: ListedReport, first: ListedReport) -> None:
        if other.window != first.window:
            words = f"{other.place}: {first.place} lists it for batch window {first.window}; give the new one its own address"
            self.leave_out(other.shown, LISTED_ELSEWHERE, words)
        elif other.period != first.period:
            words = f"{other.place}: period: found {other.period!r}; {first.place} says {first.period!r}"
            self.leave_out(other.shown, CONFLICT, words)
        else:
            self.leave_out(other.shown, LISTED_TWICE, f"{other.place}: {first.place} says the same; it is taken once")

    def _say_conflicts(self, reports: Iterable[ListedReport]) -> None:
        by_pair: dict[tuple[str, str], list[ListedReport]] = {}
        for report in reports:
            by_pair.setdefault((report.site, report.period), []).append(report)
        for (site, period), some in by_pair.items():
            if len(some) < 2:
                continue
            names = ", ".join(sorted(report.shown for report in some))
            words = f"site {site}, period {period}: {len(some)} reports ({names}); only the first that is recorded has the record"
            for report in some:
                self.leave_out(report.shown, CONFLICT, f"{report.place}: {words}")


def _observed_as(canonical: str, key: str) -> str:
    """The canonical address, made unique where a secret was taken out of it. A local one always with `file:///`, as ever."""
    if canonical.startswith("file:"):
        return f"file:///{canonical.removeprefix('file:').lstrip('/')}"
    shown = redacted(canonical)
    return shown if "***" not in shown else f"{shown}#{key[:SHORT_KEY_LENGTH]}"


def _path(canonical: str, root: Path) -> str:
    """The whole path of a canonical local address."""
    if canonical.startswith("file://"):
        return str(local_path(canonical))
    return str(root / os.fsdecode(unquote_to_bytes(canonical.removeprefix("file:"))))


def _read_tables(found: _Found) -> None:
    source = found.config.source
    pattern = found.config.resolve(source.table_names or "")
    named = _matcher(pattern.name)
    try:
        paths = sorted(path for path in pattern.parent.iterdir() if path.is_file() and named.fullmatch(path.name))
    except OSError as error:
        raise EnvironmentUnfit(
            f"{pattern.parent}: the folder of tables cannot be listed ({error.strerror}); mount it or mend source.tables",
            kind=ErrorKind.SOURCE_MISSING,
        ) from error
    for path in paths:
        match = named.fullmatch(path.name)
        _read_one(found, path, window=(match.groupdict().get("window") or "") if match else "")


def _read_one(found: _Found, path: Path, *, window: str) -> None:
    def silent(verdict: str, reason: str) -> None:
        found.leave_out(path.name, verdict, reason)
        if window:
            found.silent.add(window)
        else:
            found.is_all_silent = True

    columns = {name: getattr(found.config.source.columns, name) for name in ("site", "uri", "period", "window")}
    try:
        age_s = time.time() - path.stat().st_mtime
        if 0 <= age_s < found.config.source.settle_s:
            silent(BEING_WRITTEN, f"it changed {age_s:.0f} s ago; it is read when it has stood still for source.settle_s")
            return
        for row in read_table(path, columns):
            if isinstance(row, BadRow):
                found.leave_out(f"{path.name} line {row.line}", BAD_ROW, f"{path.name} {row}")
            else:
                place = f"{path.name} line {row.line}"
                found.add(site=row.site, period=row.period, uri=row.uri, window=window or row.window, place=place)
    except (OSError, TableUnreadable) as error:
        silent(BAD_TABLE, f"{path.name}: {error}")


def _read_index(found: _Found, limits: FetchLimits) -> None:
    source = found.config.source
    where, pattern = source.listing or "", source.pattern or ""
    address = str(found.config.resolve(where)) if scheme_of(where) == "file" and not where.startswith("file:") else where
    named = _matcher(pattern)
    # a page links to other pages and to its styles: what is named there has the pattern's ending
    ending = Path(pattern).suffix.casefold() if scheme_of(address) in WEB else ""
    own = (found.config.state_dir.as_uri(), found.config.store_dir.as_uri())
    for uri in list_index(address, limits=limits):
        name = file_name(uri)
        match = named.fullmatch(name)
        if match is None:
            if name.casefold().endswith(ending) and not uri.startswith(own):
                found.leave_out(shown_uri(uri, found.config.root), NO_REPORT, f"its name does not fit source.pattern {pattern!r}")
            continue
        parts = match.groupdict()
        found.add(site=parts["site"], period=parts["period"], uri=uri, window=parts.get("window") or "", place=redacted(address))


def _matcher(pattern: str) -> re.Pattern[str]:
    """A name pattern with named parts, as a regular expression: `*` and `?` as in a shell, in any letter case."""
    pieces = _NAMED.split(pattern)
    text = "".join(f"(?P<{piece}>.+?)" if at % 2 else _shell(piece) for at, piece in enumerate(pieces))
    return re.compile(text, re.IGNORECASE)


def _shell(piece: str) -> str:
    return translate(piece).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
