"""Debian's chromium, headless, driven by Playwright: what a page shows, asks for and complains about, and pictures of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

SCREENSHOTS_VARIABLE = "TILEWRIGHT_SCREENSHOTS"
PATIENCE_S = 90.0
"""How long something may take to be shown; a machine that runs other tests beside this one is slow."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # what the page asks of any other machine fails at once, so that what is shown needs no network
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
_KEEP_TOASTS = """
new MutationObserver(() => {
  const seen = new Set(JSON.parse(sessionStorage.getItem("toasts") || "[]"));
  document.querySelectorAll("li[data-sonner-toast], .bp5-toast").forEach((toast) => toast.innerText && seen.add(toast.innerText));
  sessionStorage.setItem("toasts", JSON.stringify([...seen]));
}).observe(document, {childList: true, subtree: true});
"""


@dataclass
class Viewer:
    """One tab of a browser on the site at `base`. `complaints`: errors of scripts, console and requests."""

    page: Any
    base: str
    pictures: Path
    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note from now on what the page asks for and complains about."""
        self.page.add_init_script(_KEEP_TOASTS)
        self.page.on("request", lambda request: self._note_host(request.url))
        self.page.on("websocket", lambda socket: self._note_host(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("console", lambda said: self.complaints.append(f"console: {said.text}") if said.type == "error" else None)
        self.page.on(
            "response",
            lambda answer: self.complaints.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
        )

    def open(self, path: str, *, until: str) -> None:
        """Go to a page and wait until it shows a text."""
        self.page.goto(self.base + path)
        self.shows(until)

    def shows(self, text: str) -> None:
        """Wait until a text is to be seen. Raises Playwright's time-out error."""
        self.page.get_by_text(text).filter(visible=True).first.wait_for(timeout=PATIENCE_S * 1000)

    def text(self) -> str:
        """All text of the page."""
        found: str = self.page.inner_text("body")
        return found

    def picture(self, name: str) -> None:
        """Keep a picture of what the window shows."""
        self.page.screenshot(path=self.pictures / f"{name}.png", animations="disabled")

    def toasts(self) -> list[str]:
        """Every passing message that was shown so far."""
        found: list[str] = self.page.evaluate('JSON.parse(sessionStorage.getItem("toasts") || "[]")')
        return found

    def _note_host(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss"):
            self.hosts.add(parts.netloc)


@contextmanager
def viewer(base: str, *, pictures: Path) -> Iterator[Viewer]:
    """A tab of a browser that is closed at the end of the block; skips the test where there is no browser.

    Pictures go to the folder that `TILEWRIGHT_SCREENSHOTS` names, else to `pictures`.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[test]'")
    folder = Path(os.environ.get(SCREENSHOTS_VARIABLE) or pictures)
    folder.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        try:
            tab = browser.new_context(viewport={"width": 1500, "height": 1300}).new_page()
            tab.set_default_timeout(PATIENCE_S * 1000)
            found = Viewer(tab, base, folder)
            found.watch()
            yield found
        finally:
            browser.close()


def chromium() -> str:
    """Path of the browser. Skips the test where there is none."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip("needs chromium: on Debian, apt-get install chromium")
