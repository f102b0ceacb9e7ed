"""A real HTTP receiver of alerts on this machine: records JSON posts, and can be told to fail or to hang."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Listens on 127.0.0.1. `messages` are those that were answered with success, `attempts` counts all posts."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.attempts = 0
        self.status = 200
        self._answering = threading.Event()
        self._answering.set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The Apprise URL of this receiver; short time-outs, so that a hanging one does not hold a test."""
        return f"json://127.0.0.1:{self._server.server_port}/?cto=2&rto=0.5"

    def fail(self, status: int = 503) -> None:
        """Answer with an error from now on."""
        self.status = status

    def hang(self) -> None:
        """Take requests and do not answer, until `recover`."""
        self._answering.clear()

    def recover(self) -> None:
        """Answer with success from now on."""
        self.status = 200
        self._answering.set()

    def titles(self) -> list[str]:
        """Titles of the messages taken, in order."""
        return [str(message["title"]) for message in self.messages]

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; further posts are refused."""
        self._answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with receiver._lock:
                    receiver.attempts += 1
                is_hanging = not receiver._answering.is_set()
                receiver._answering.wait()
                status = 504 if is_hanging else receiver.status
                if status == 200:
                    with receiver._lock:
                        receiver.messages.append(json.loads(body))
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # the sender gave up

            def log_message(self, *_: Any) -> None:
                return

        return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that listens while the block runs."""
    receiver = Receiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()
