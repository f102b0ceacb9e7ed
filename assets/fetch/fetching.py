"""Content at an address into a local file, from any scheme, within limits, with a verdict for each way to fail.

`fetch` takes the content, `version_token(s)` ask whether it is still the same, `list_index` lists what a folder, prefix or
index page holds. Nothing here tries twice: the engine does, by the verdict. A target is removed when taking failed; one that a
kill left behind is the caller's scratch file and holds a part only.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from assets.fetch.files import take_local, take_object
from assets.fetch.host_slots import HostSlots
from assets.fetch.index import list_index
from assets.fetch.model import Fetched, FetchLimits
from assets.fetch.tokens import version_token, version_tokens
from assets.fetch.uris import WEB, host_of, redacted, scheme_of

__all__ = ["FetchLimits", "Fetched", "HostSlots", "fetch", "list_index", "redacted", "version_token", "version_tokens"]


def fetch(uri: str, target: Path, *, limits: FetchLimits, slots: HostSlots | None = None) -> Fetched:
    """Stream what `uri` holds into the file `target`, at most `limits.max_bytes`, and say what it was.

    Raises `TransientError` for what a later try may get (time-outs, resets, short bodies, unknown names, 408/425/429/5xx, with
    `retry_after_s` where the source asks for a pause); `UnitRejected` for what it may not (404, 410, other 4xx, too large,
    redirects that lead astray, schemes that are not taken); `EnvironmentUnfit` for what a person must mend (401, 403, 407,
    certificates, a missing folder, a missing package). After a crash: `target` may hold a part.
    """
    scheme = scheme_of(uri)
    try:
        if scheme == "file":
            return take_local(uri, target, limits=limits)
        with ExitStack() as held:
            if slots is not None:
                held.enter_context(slots.take(host_of(uri), limits.slot_wait_s))
            if scheme not in WEB:
                return take_object(uri, target, limits=limits)
            # loaded where it is used: a project of local files never needs it
            from assets.fetch.http import web_session

            return held.enter_context(web_session(limits)).take(uri, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
