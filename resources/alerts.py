"""Delivery of the outbox through Apprise: chat, mail and webhooks by URL.

The outbox is in the ledger: a fact is written first, sent next, noted last, each in a transaction of its own. So an alert
outlives a channel that is down, and is sent twice only if the process dies between sending and noting. Each channel's deliveries
are noted apart: a broken URL neither hides an alert from the others nor makes it come to them again. No URL is logged, stored or
shown; a channel is known by its scheme and eight hex digits of its URL's digest.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

_log = logging.getLogger(__name__)
_QUIET = {"apprise": logging.CRITICAL, "urllib3": logging.INFO}
"""Loggers that write hosts and paths of URLs; a webhook's path is its secret."""
_SCHEME = re.compile(r"([a-z][a-z0-9+]{0,31})://", re.IGNORECASE)
_TITLE_MAX = 200
_BODY_MAX = 8_000
_ALERTS_PER_CALL = 100


class Severity(StrEnum):
    """How loudly a fact is told; Apprise's notification types."""

    INFO = "info"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class AlertFact:
    """One fact that a person must know. `repeats`: it stands until resolved, and is said again while it does."""

    fingerprint: str
    title: str
    body: str
    severity: Severity
    repeats: bool = False


class OutboxRow(Protocol):
    """An alert of the outbox that some channel may still wait for. `deliveries`: channel name -> when it last took the alert."""

    @property
    def id(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def is_standing(self) -> bool: ...
    @property
    def deliveries(self) -> Mapping[str, datetime]: ...


class Outbox(Protocol):
    """The ledger's side; see `resources.ledger`."""

    def enqueue_alert(self, fingerprint: str, *, title: str, body: str, severity: str, is_standing: bool = False) -> bool: ...
    def due_alerts(self, *, now: datetime, repeat_every: timedelta) -> Sequence[OutboxRow]: ...
    def note_alert_delivery(self, alert_id: int, channel: str, at: datetime) -> None: ...
    def mark_alert_sent(self, alert_id: int, at: datetime) -> None: ...
    def resolve_alerts(self, still_true: Iterable[str], *, prefix: str = "") -> int: ...


@dataclass(frozen=True, slots=True)
class Channel:
    """One configured URL, opened; without a `service` if it cannot be used. Its `name` holds no secret."""

    name: str
    service: Any = field(repr=False)

    def send(self, title: str, body: str, severity: str) -> bool:
        """Send one message; true only if the service took it. Never raises: a service that fails in any way did not take it."""
        if self.service is None:
            return False
        from apprise import NotifyFormat, NotifyType

        try:
            taken = self.service.notify(body=body, title=title, notify_type=NotifyType(severity), body_format=NotifyFormat.TEXT)
        except Exception as error:  # a plug-in's own errors: the alert stays in the outbox, which is all that matters here
            _log.warning("alert channel %s failed: %s", self.name, type(error).__name__)
            return False
        return bool(taken)


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What one call delivered. `waiting`: alerts that at least one channel has yet to take; `failed_channels` did not answer."""

    due: int = 0
    messages_sent: int = 0
    completed: int = 0
    waiting: int = 0
    failed_channels: tuple[str, ...] = ()


def open_channels(urls: Iterable[str]) -> tuple[Channel, ...]:
    """Open each Apprise URL as a channel; the same URL twice is one channel.

    One that Apprise cannot use is a channel that takes nothing, so that a slip in one URL does not silence others. It is named
    in the log by its place in the list, never by the URL, which may hold a secret, and in every report.
    """
    import apprise

    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
    channels: dict[str, Channel] = {}
    for number, url in enumerate(urls, start=1):
        scheme = _SCHEME.match(url)
        service: Any = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True, async_mode=False))
        if not service.add(url):
            service = None
            _log.error(
                "alerts.urls: entry %d: found a URL of scheme %r that cannot be used; "
                "allowed: any Apprise URL, e.g. slack://, msteams://, mailto://, json://",
                number,
                scheme[1] if scheme else "none",
            )
        name = f"{scheme[1] if scheme else 'url'}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
        channels[name] = Channel(name=name, service=service)
    return tuple(channels.values())


def enqueue(outbox: Outbox, facts: Iterable[AlertFact]) -> int:
    """Put facts into the outbox, each once; how many were new. After a crash: call again, what is there stays as it is.

    Text is freed of control characters first: a title becomes a header in mail, and file names come from outside.
    """
    return sum(
        outbox.enqueue_alert(
            fact.fingerprint,
            title=_one_line(fact.title),
            body=_plain(fact.body),
            severity=fact.severity.value,
            is_standing=fact.repeats,
        )
        for fact in facts
    )


def keep_standing(outbox: Outbox, facts: Sequence[AlertFact], *, prefix: str) -> tuple[int, int]:
    """Make the standing alerts whose fingerprint begins with `prefix` exactly these; `(new, resolved)`.

    Facts that are no longer true fall silent. Raises `ValueError` for a fact that does not repeat or has another prefix.
    """
    for fact in facts:
        if not fact.repeats or not fact.fingerprint.startswith(prefix):
            raise ValueError(f"{fact.fingerprint}: expected a standing fact whose fingerprint begins with {prefix!r}")
    new = enqueue(outbox, facts)
    return new, outbox.resolve_alerts([fact.fingerprint for fact in facts], prefix=prefix)


def deliver(
    outbox: Outbox, channels: Sequence[Channel], *, now: datetime, repeat_every: timedelta, limit: int = _ALERTS_PER_CALL
) -> DeliveryReport:
    """Send what is due to every channel that has not taken it, oldest first, at most `limit` alerts.

    A channel that fails is left alone for the rest of the call: a dead host costs one timeout, not one for each alert.
    Without channels nothing is sent and everything waits. After a crash: what was sent and not yet noted is sent once more.
    """
    due = outbox.due_alerts(now=now, repeat_every=repeat_every)
    sent = completed = told = 0
    failed: set[str] = set()
    for row in due if channels else ():
        if told >= limit:
            break
        taken: list[datetime] = []
        messages = 0
        for channel in channels:
            last = row.deliveries.get(channel.name)
            if last is not None and not (row.is_standing and now - last >= repeat_every):
                taken.append(last)
            elif channel.name not in failed and channel.send(row.title, row.body, row.severity):
                outbox.note_alert_delivery(row.id, channel.name, now)
                taken.append(now)
                messages += 1
            else:
                failed.add(channel.name)
        # only what was told counts: alerts that wait for a broken channel must not keep later ones from the others
        told += messages > 0
        sent += messages
        if len(taken) == len(channels):
            outbox.mark_alert_sent(row.id, min(taken))
            completed += 1
    if failed:
        _log.warning("alert channels did not take a message, kept for later: %s", ", ".join(sorted(failed)))
    return DeliveryReport(
        due=len(due), messages_sent=sent, completed=completed, waiting=len(due) - completed, failed_channels=tuple(sorted(failed))
    )


def _one_line(text: str) -> str:
    return " ".join("".join(" " if unicodedata.category(char)[0] == "C" else char for char in text).split())[:_TITLE_MAX]


def _plain(text: str) -> str:
    kept = "".join(char for char in text if char in "\n\t" or unicodedata.category(char)[0] != "C")
    return kept if len(kept) <= _BODY_MAX else kept[: _BODY_MAX - 4] + " ..."
