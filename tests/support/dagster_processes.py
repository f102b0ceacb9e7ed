"""Real Dagster processes for tests: a daemon and a web server over the small location, and ways to look at and kill them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
WORKSPACE = """load_from:
  - python_module:
      module_name: tests.support.bytes_location
      location_name: bytes
      working_directory: {root}
"""
_PR_SET_PDEATHSIG = 1
SETTINGS = """telemetry:
  enabled: false
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config:
    max_concurrent_runs: 2
    dequeue_interval_seconds: 1
run_monitoring:
  enabled: true
  poll_interval_seconds: 5
run_retries:
  enabled: false
sensors:
  use_threads: true
  num_workers: 4
"""


@dataclass
class Processes:
    """The daemon and the web server of one home."""

    folder: Path
    port: int
    environment: dict[str, str]
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: str, log: str) -> subprocess.Popen[bytes]:
        """Start a Dagster command in its own process group."""
        with (self.folder / log).open("ab") as stream:
            child = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self.children.append(child)
        return child

    def start_daemon(self) -> subprocess.Popen[bytes]:
        """The daemon: queue, sensors, backfills."""
        return self.start("dagster._daemon", "run", "-w", str(self.folder / "workspace.yaml"), log="daemon.log")

    def start_web_server(self) -> subprocess.Popen[bytes]:
        """The web server; answers when it is up."""
        child = self.start(
            "dagster_webserver", "-w", str(self.folder / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(self.port), log="web.log"
        )
        eventually(lambda: self.ask("{ version }") is not None, timeout_s=300)
        return child

    def ask(self, query: str, variables: dict[str, Any] | None = None) -> Any:
        """A GraphQL query; None while nobody answers."""
        body = json.dumps({"query": query, "variables": variables or {}}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = json.load(answer)
        except OSError:
            return None
        if "errors" in found:
            raise AssertionError(found["errors"])
        return found["data"]

    def stop(self) -> None:
        """Kill everything that was started, children of children too."""
        for child in self.children:
            try:
                family = psutil.Process(child.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                family = []
            for process in [*family, psutil.Process(child.pid)] if child.poll() is None else family:
                kill(process.pid)
            child.wait(timeout=30)


def _die_with_parent() -> None:
    """In the child: a test run that is killed leaves no daemon behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill(pid: int) -> None:
    """SIGKILL, also to one that is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def eventually(holds: Callable[[], Any], *, timeout_s: float, every_s: float = 0.25) -> Any:
    """What `holds` returns once it is true. Raises `AssertionError` after the time-out."""
    end = time.monotonic() + timeout_s
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not so within {timeout_s} s: {holds}")
        time.sleep(every_s)


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def processes(folder: Path, configuration: Path) -> Iterator[Processes]:
    """A Dagster home with its settings in `folder`, and whatever is started in the block killed at its end."""
    home = folder / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS)
    (folder / "workspace.yaml").write_text(WORKSPACE.format(root=ROOT))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "TILEWRIGHT_CONFIG": str(configuration),
        "PYTHONPATH": str(ROOT),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    found = Processes(folder, free_port(), environment)
    try:
        yield found
    finally:
        found.stop()
