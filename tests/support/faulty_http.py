"""A real HTTP server on this machine that answers badly on purpose, one way for each path, and counts what it was asked."""

from __future__ import annotations

import gzip
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; what an answer may do with it."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        owner = self.server.owner
        path = self.path.partition("?")[0]
        with owner.lock:
            owner.requests.append((self.command, self.path, dict(self.headers)))
            owner.now_open += 1
            owner.most_open = max(owner.most_open, owner.now_open)
        try:
            owner.routes.get(path, status(404))(self)
        except OSError:
            self.close_connection = True  # the client gave up
        finally:
            with owner.lock:
                owner.now_open -= 1

    def head(self, code: int, headers: dict[str, str]) -> None:
        """Send status and headers."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def body(self, content: bytes) -> None:
        """Send bytes, unless only the head was asked for."""
        if self.command != "HEAD":
            self.wfile.write(content)
            self.wfile.flush()

    @property
    def stopping(self) -> threading.Event:
        """Set when the server is to stop: what an answer waits for, so that no test waits for it."""
        return self.server.owner.stopping

    def log_message(self, *_: Any) -> None:
        return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: FaultyHttp

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # resets on purpose


class FaultyHttp:
    """Listens on 127.0.0.1. `requests` are all that came, `most_open` is how many were answered at once at most."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.routes: dict[str, Answer] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.now_open = self.most_open = 0
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), Request)
        self._server.owner = self
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def url(self, path: str) -> str:
        """The address of `path` here."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{path}"

    def route(self, path: str, answer: Answer) -> str:
        """Answer `path` so from now on; gives its address."""
        self.routes[path] = answer
        return self.url(path)

    def count(self, method: str, path: str | None = None) -> int:
        """How many requests of `method` came, for one path or for all."""
        with self.lock:
            return sum(one == method and path in (None, asked) for one, asked, _ in self.requests)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and end what still drips or waits."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def faulty_http(certificate: Path | None = None) -> Iterator[FaultyHttp]:
    """A server that listens while the block runs."""
    server = FaultyHttp(certificate)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ok(content: bytes = b"%PDF-1.7 report", **headers: str) -> Answer:
    """Status 200 with its length; further headers by name, `_` for `-`."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(request: Request) -> None:
        request.head(200, {"Content-Length": str(len(content)), "Content-Type": "application/pdf", **more})
        request.body(content)

    return answer


def status(code: int, **headers: str) -> Answer:
    """A status with a small body."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(request: Request) -> None:
        request.head(code, {"Content-Length": "2", **more})
        request.body(b"no")

    return answer


def raw(content: bytes) -> Answer:
    """Bytes as they are, in place of an answer."""

    def answer(request: Request) -> None:
        request.wfile.write(content)
        request.close_connection = True

    return answer


def silent() -> Answer:
    """Takes the request and says nothing."""

    def answer(request: Request) -> None:
        request.stopping.wait()
        request.close_connection = True

    return answer


def stalls(content: bytes = b"%PDF-1.7") -> Answer:
    """Sends the head and the first bytes, then nothing."""

    def answer(request: Request) -> None:
        request.head(200, {"Content-Length": "1000000"})
        request.body(content)
        request.stopping.wait()
        request.close_connection = True

    return answer


def drips(every_s: float = 0.02) -> Answer:
    """One byte after the other for ever, none of them late."""

    def answer(request: Request) -> None:
        request.head(200, {"Content-Length": "1000000"})
        while not request.stopping.wait(every_s):
            request.body(b"x")
        request.close_connection = True

    return answer


def endless(chunk: bytes = b"x" * 65_536) -> Answer:
    """A body without declared length that does not end."""

    def answer(request: Request) -> None:
        request.head(200, {"Connection": "close"})
        while not request.stopping.is_set():
            request.body(chunk)
        request.close_connection = True

    return answer


def short(content: bytes = b"%PDF-1.7 half", *, missing: int = 10) -> Answer:
    """Declares more than it sends, then closes."""

    def answer(request: Request) -> None:
        request.head(200, {"Content-Length": str(len(content) + missing)})
        request.body(content)
        request.close_connection = True

    return answer


def chunked_short() -> Answer:
    """A chunked body that ends before its last chunk."""

    def answer(request: Request) -> None:
        request.head(200, {"Transfer-Encoding": "chunked"})
        request.body(b"8\r\n%PDF-1.7\r\n")
        request.close_connection = True

    return answer


def reset(*, after: bytes | None = None) -> Answer:
    """Resets the connection: at once, or after the head and some bytes."""

    def answer(request: Request) -> None:
        if after is not None:
            request.head(200, {"Content-Length": "1000000"})
            request.body(after)
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.close_connection = True
        os.close(request.connection.detach())

    return answer


def unavailable(times: int, then: Answer, *, code: int = 503, retry_after: str | None = "7") -> Answer:
    """An error that asks for a pause, so many times; then `then`."""
    left, lock = [times], threading.Lock()
    headers = {} if retry_after is None else {"Retry_After": retry_after}

    def answer(request: Request) -> None:
        with lock:
            left[0] -= 1
            is_down = left[0] >= 0
        (status(code, **headers) if is_down else then)(request)

    return answer


def in_seconds(seconds: float) -> str:
    """An HTTP date so many seconds from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def redirect(to: str, code: int = 302) -> Answer:
    """Leads elsewhere."""
    return status(code, Location=to)


def gzipped(content: bytes, *, cut: int = 0, coding: str = "gzip") -> Answer:
    """A content coding that nobody asked for; `cut` bytes missing at its end."""
    packed = gzip.compress(content)
    return ok(packed[: len(packed) - cut], Content_Encoding=coding)


def no_head(then: Answer, code: int = 405) -> Answer:
    """Refuses HEAD, answers GET."""

    def answer(request: Request) -> None:
        (status(code) if request.command == "HEAD" else then)(request)

    return answer


def gate(opened: threading.Event, then: Answer) -> Answer:
    """Answers when `opened` is set."""

    def answer(request: Request) -> None:
        while not opened.wait(0.05):
            if request.stopping.is_set():
                return
        then(request)

    return answer
