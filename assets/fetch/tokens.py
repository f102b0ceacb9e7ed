"""Version tokens: whether a source holds what it held, without taking its content.

Tokens are compared for equality and nothing else. None means that the source does not say: take the content and compare its
digest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from assets.fetch.files import local_token, object_token
from assets.fetch.host_slots import HostSlots
from assets.fetch.model import FetchLimits
from assets.fetch.uris import WEB, host_of, scheme_of
from resources.errors import TransientError
from resources.verdicts import Failure, classify

if TYPE_CHECKING:
    from assets.fetch.http import Web

_UNWELL_AFTER = 5


def version_token(uri: str, *, limits: FetchLimits, slots: HostSlots | None = None) -> str | None:
    """The token of what `uri` holds now: size, time and inode of a file; ETag, or Last-Modified with length, of a web address.

    None when the source gives none, or does not answer to HEAD. Raises as `fetch`.
    """
    with _Asking(limits, slots) as asking:
        return asking.token(uri)


def version_tokens(
    uris: Iterable[str], *, limits: FetchLimits, slots: HostSlots | None = None, threads: int = 16
) -> Iterator[tuple[str, str | Failure | None]]:
    """Each of `uris`, in order, with its token or with the failure that asking for it met.

    `threads` ask at once, over one session; memory does not grow with the number of addresses. A host that failed several times
    in a row is not asked again: its other addresses get its last failure, so that a dead host costs a few time-outs and not one
    for each.
    """
    waiting: deque[tuple[str, Future[str | Failure | None]]] = deque()
    with _Asking(limits, slots) as asking, ThreadPoolExecutor(threads, thread_name_prefix="tokens") as pool:
        left = iter(uris)
        try:
            for uri in left:
                waiting.append((uri, pool.submit(asking.answer, uri)))
                if len(waiting) < threads * 4:
                    continue
                name, answer = waiting.popleft()
                yield name, answer.result()
            while waiting:
                name, answer = waiting.popleft()
                yield name, answer.result()
        finally:
            for _, answer in islice(waiting, None):
                answer.cancel()


class _Asking:
    """Asks for tokens from several threads; one session, opened when the first web address comes."""

    def __init__(self, limits: FetchLimits, slots: HostSlots | None) -> None:
        self._limits, self._slots = limits, slots
        self._web: Web | None = None
        self._stack = ExitStack()
        self._guard = threading.Lock()
        self._in_a_row: dict[str, int] = {}
        self._last: dict[str, Failure] = {}

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def token(self, uri: str) -> str | None:
        scheme = scheme_of(uri)
        if scheme == "file":
            return local_token(uri, limits=self._limits)
        with ExitStack() as held:
            if self._slots is not None:
                held.enter_context(self._slots.take(host_of(uri), self._limits.slot_wait_s))
            return self._session().token(uri) if scheme in WEB else object_token(uri, limits=self._limits)

    def answer(self, uri: str) -> str | Failure | None:
        try:
            host = host_of(uri)
            with self._guard:
                if self._in_a_row.get(host, 0) >= _UNWELL_AFTER:
                    return self._last[host]
            found = self.token(uri)
        except TransientError as error:
            failure = classify(error)
            with self._guard:
                self._in_a_row[host] = self._in_a_row.get(host, 0) + 1
                self._last[host] = failure
            return failure
        except Exception as error:
            return classify(error)
        with self._guard:
            self._in_a_row.pop(host, None)
        return found

    def _session(self) -> Web:
        with self._guard:
            if self._web is None:
                # the HTTP library takes its time to load, and a project of local files never needs it
                from assets.fetch.http import web_session

                self._web = self._stack.enter_context(web_session(self._limits))
            return self._web
