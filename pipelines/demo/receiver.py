"""A real HTTP receiver of alerts on this machine, for the demo."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AlertReceiver:
    """Keeps what was posted to it. `url` is for `alerts.urls`."""

    def __init__(self, server: ThreadingHTTPServer, posts: list[dict[str, Any]]) -> None:
        self.url = f"json://127.0.0.1:{server.server_address[1]}/alerts"
        self._posts = posts

    @property
    def titles(self) -> list[str]:
        """Titles of the alerts that came, in order."""
        return [str(post.get("title", "")) for post in self._posts]


@contextmanager
def alert_receiver() -> Iterator[AlertReceiver]:
    """Listen on a free port of 127.0.0.1 until the end of the block."""
    posts: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            posts.append(json.loads(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing: the demo prints what came."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield AlertReceiver(server, posts)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
