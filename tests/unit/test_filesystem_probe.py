"""The proof that a filesystem does what a store needs, and the ending of a hung holder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources import filesystem_probe
from resources.errors import EnvironmentUnfit, ErrorKind
from resources.filesystem_probe import probe_filesystem
from resources.lease_breaking import end_local_holder


def test_a_good_filesystem_passes_and_is_left_clean(tmp_path: Path) -> None:
    """Nothing of the probe stays behind."""
    probe_filesystem(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_filesystem_that_overwrites_a_taken_name_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that replaces what is there, as some overlays do, fails the probe by name."""

    def replacing(source: Path, target: Path) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content)

    monkeypatch.setattr(filesystem_probe.os, "link", replacing)
    with pytest.raises(EnvironmentUnfit, match="a link onto a name that is taken is refused") as caught:
        probe_filesystem(tmp_path)
    assert caught.value.kind is ErrorKind.STORE_UNWRITABLE
    assert list(tmp_path.iterdir()) == []


def test_a_filesystem_without_links_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that the filesystem refuses is said with the folder and the system's words."""

    def refusing(_source: Path, _target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(filesystem_probe.os, "link", refusing)
    with pytest.raises(EnvironmentUnfit, match="Operation not permitted"):
        probe_filesystem(tmp_path)
    assert list(tmp_path.iterdir()) == []


DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open(sys.argv[1])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def deaf_holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lease file open and ignores SIGTERM."""
    (tmp_path / "leases.lock").touch()
    child = subprocess.Popen([sys.executable, "-c", DEAF, str(tmp_path / "leases.lock")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_holder_that_does_not_listen_is_killed(tmp_path: Path, deaf_holder: subprocess.Popen[str]) -> None:
    """After the grace it is killed for good."""
    assert end_local_holder(tmp_path / "leases.lock", pid=deaf_holder.pid, grace_s=0.1)
    assert deaf_holder.wait(timeout=10) == -9


def test_a_number_that_is_another_process_is_left_alone(tmp_path: Path, deaf_holder: subprocess.Popen[str]) -> None:
    """A process that does not hold the file is never ended, whatever the ledger says of its number."""
    other = tmp_path / "other.lock"
    other.touch()
    assert not end_local_holder(other, pid=deaf_holder.pid, grace_s=0.1)
    assert deaf_holder.poll() is None


def test_a_holder_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    """Ending what has ended says so and raises nothing."""
    (tmp_path / "leases.lock").touch()
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert not end_local_holder(tmp_path / "leases.lock", pid=child.pid, grace_s=0.1)
