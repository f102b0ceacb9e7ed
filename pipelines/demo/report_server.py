"""A small web server of reports that fails a few times, as such servers do: status 503 with Retry-After, and a body cut short."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class ReportServer:
    """Serves the files of a folder on 127.0.0.1. `bodies` counts the contents it gave out whole."""

    def __init__(self, folder: Path, *, port: int, busy: int, cut_short: int) -> None:
        self.folder = folder
        self.bodies = 0
        self._busy, self._cut_short = busy, cut_short
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Request)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def failures_left(self) -> int:
        """How often it is still going to fail."""
        return self._busy + self._cut_short

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def turn(self) -> str:
        """What becomes of the next request for a content: busy, cut short, or well."""
        with self._lock:
            if self._busy:
                self._busy -= 1
                return "busy"
            if self._cut_short:
                self._cut_short -= 1
                return "cut short"
            self.bodies += 1
            return "well"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: ReportServer


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(turn="well")

    def do_GET(self) -> None:
        self._answer(turn=self.server.owner.turn())

    def _answer(self, *, turn: str) -> None:
        path = self.server.owner.folder / Path(self.path.partition("?")[0]).name
        content = path.read_bytes() if path.is_file() else None
        if content is None:
            self._head(404, {"Content-Length": "0"})
        elif turn == "busy":
            self._head(503, {"Content-Length": "0", "Retry-After": "1"})
        else:
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            self._head(200, {"Content-Length": str(len(content)), "Content-Type": "application/pdf", "ETag": etag})
            if self.command == "GET":
                self.wfile.write(content[: len(content) // 2] if turn == "cut short" else content)
                self.close_connection = turn == "cut short"

    def _head(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def report_server(folder: Path, *, port: int = 0, busy: int, cut_short: int) -> Iterator[ReportServer]:
    """A server that listens while the block runs; first it is `busy` so often, then `cut_short`."""
    server = ReportServer(folder, port=port, busy=busy, cut_short=cut_short)
    server.start()
    try:
        yield server
    finally:
        server.stop()
