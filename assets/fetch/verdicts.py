"""What a failed request means: by status code and by the type of what was raised, never by a message.

Each function makes the error that says it; none is shown a secret, since addresses go through `redacted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from assets.fetch.model import FetchLimits
from assets.fetch.uris import host_of, redacted
from resources.errors import EnvironmentUnfit, ErrorKind, TilewrightError, TransientError, UnitRejected

_TRANSIENT = frozenset({408, 425, 429})
_REFUSED = frozenset({401, 403, 407})
_GONE = frozenset({404, 410})


def of_status(status: int, uri: str, *, headers: Mapping[str, str], limits: FetchLimits, now: datetime) -> TilewrightError:
    """The error that an HTTP status other than success stands for. `now` is UTC, used where the answer has no date of its own."""
    shown, host = redacted(uri), host_of(uri)
    if status in _REFUSED:
        who = "the proxy on the way to it" if status == 407 else host
        return EnvironmentUnfit(
            f"{who} refused the credentials for {shown} (status {status}); "
            f"renew them in its address or in ~/.netrc (machine {host.rpartition(':')[0]})",
            kind=ErrorKind.CREDENTIALS_REFUSED,
        )
    if status in _GONE:
        return UnitRejected(
            f"{host} has no {shown} (status {status}); deliver it again or mend its address", kind=ErrorKind.NOT_FOUND
        )
    if status in _TRANSIENT or status >= 500 or status == 202:
        kind = ErrorKind.TIMEOUT if status in (408, 504) else ErrorKind.SOURCE_UNAVAILABLE
        pause_s = retry_after_s(headers, limits=limits, now=now)
        asked = "" if pause_s is None else f" and asks for a pause of {pause_s:.0f} s"
        return transient(f"{host} answers status {status} for {shown}{asked}", kind=kind, retry_after_s=pause_s)
    return UnitRejected(
        f"{host} answers status {status} for {shown}, which no content comes with; mend its address", kind=ErrorKind.UNREADABLE
    )


def retry_after_s(headers: Mapping[str, str], *, limits: FetchLimits, now: datetime) -> float | None:
    """Seconds that Retry-After asks for, at most `limits.retry_after_max_s`; None when it is absent or not understood.

    A date is taken against the date of the answer itself, so that the clocks of the two machines need not agree (RFC 9110,
    10.2.3).
    """
    asked = headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        # a number with more digits than a float has is still only "very long"
        return min(float(asked[:18]), limits.retry_after_max_s)
    until = _date(asked)
    if until is None:
        return None
    since = _date(headers.get("Date", "")) or now
    return min(max((until - since).total_seconds(), 0.0), limits.retry_after_max_s)


def transient(message: str, *, kind: ErrorKind, retry_after_s: float | None = None) -> TransientError:
    """A `TransientError` that carries the pause its source asked for."""
    return TransientError(message, kind=kind, retry_after_s=retry_after_s)


def too_large(uri: str, limits: FetchLimits, *, found: int | None = None) -> UnitRejected:
    """The error for content of more than `limits.max_bytes`."""
    size = "more" if found is None else f"{found:,}"
    return UnitRejected(f"{redacted(uri)}: {size} bytes, and at most {limits.max_bytes:,} are taken", kind=ErrorKind.TOO_LARGE)


def not_found(uri: str) -> UnitRejected:
    """The error for a file or object that is not there."""
    return UnitRejected(f"there is no {redacted(uri)}; deliver it again or mend its address", kind=ErrorKind.NOT_FOUND)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
