"""The bounded child: what it may cost, how it dies, and that the next file is looked at all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from pebble import ProcessExpired, ProcessFuture

from assets.scenes.inspection import Finding, Inspector, Limits
from resources.errors import ErrorKind
from tests.support.sources import write_raster

ROOT = Path(__file__).parents[2]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_raster(tmp_path / "good.tif")


def kill_readers(path: Path, *, count: int) -> threading.Thread:
    """Kill `count` children, one after the other, each while it waits for the pipe `path`: opening it to write waits for one."""

    def kill() -> None:
        killed: set[int] = set()
        while len(killed) < count:
            with open(path, "wb"):
                for pid in children() - killed:
                    if any(os.path.realpath(f"/proc/{pid}/fd/{number}") == str(path) for number in descriptors(pid)):
                        os.kill(pid, signal.SIGKILL)  # not waited for: its pool must learn of it
                        killed.add(pid)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return []


def test_a_file_that_kills_its_reader_is_rejected_and_stops_no_other(tmp_path: Path, good: Path) -> None:
    """A file over which two children die is rejected with the signal's name; the file after it is read by a new child."""
    deadly = tmp_path / "deadly"
    os.mkfifo(deadly)
    with Inspector(Limits(workers=1, wall_s=60.0)) as inspector:
        killer = kill_readers(deadly, count=2)
        first, second = inspector.look_at([deadly, good])
        killer.join(10)
    assert first == Finding(
        kind=ErrorKind.CORRUPT_INPUT, message="content: found that its reader died of it (SIGKILL); allowed: an intact raster"
    )
    assert second.facts is not None


def test_a_file_that_gives_no_answer_is_asked_again_later(tmp_path: Path, good: Path) -> None:
    """Reading that hangs is ended after the wall time, is not held against the file, and holds up no other."""
    hanging = tmp_path / "hanging"
    os.mkfifo(hanging)
    with Inspector(Limits(workers=1, wall_s=3.0)) as inspector:
        first, second = inspector.look_at([hanging, good])
    assert (first.kind, first.is_transient) == (ErrorKind.TIMEOUT, True)
    assert "found no answer within 3 s" in first.message
    assert second.facts is not None


def test_a_file_that_costs_too_much_processor_time_ends_its_child() -> None:
    """Decoding that spins is ended by the processor's time, which does not depend on how busy the machine is."""
    code = (
        "from assets.scenes import raster_facts; from assets.scenes.inspection import Limits, _look_in_child\n"
        "def spin(path, limits):\n    while True: pass\n"
        "raster_facts.look = spin; _look_in_child('x', Limits(processor_s=0))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGXCPU


def test_a_child_ended_by_processor_time_is_the_files_fault(tmp_path: Path) -> None:
    """The end of a child by its bound on processor time rejects the file for good; asking again would give the same."""
    future: ProcessFuture[Finding] = ProcessFuture()
    future.set_exception(ProcessExpired("", code=-signal.SIGXCPU))
    finding = Inspector(Limits())._result(tmp_path, future, Limits())
    assert (finding.kind, finding.is_transient) == (ErrorKind.CORRUPT_INPUT, False)
    assert finding.message == "reading: found more than 20 s of processor time; allowed: less"


def test_a_child_may_not_take_all_memory() -> None:
    """A child has a bound on memory beyond what loading took: an allocation beyond it fails in the child, and nowhere else."""
    code = (
        "import os, resource; from assets.scenes.inspection import _start_worker; _start_worker(os.getppid(), 64)\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_AS); assert soft < 4 << 30, soft\n"
        "try: bytearray(4 << 30)\nexcept MemoryError: print('bounded')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "bounded\n"


def test_no_child_outlives_the_look(good: Path) -> None:
    """Children end with the inspector, and none is started for nothing."""
    before = children()
    with Inspector(Limits()) as inspector:
        assert list(inspector.look_at([])) == []
        assert children() == before
        assert [finding.facts is not None for finding in inspector.look_at([good])] == [True]
        assert children() != before
    assert children() <= before


def test_findings_are_plain_json(good: Path) -> None:
    """What is kept in the ledger comes back as it was."""
    with Inspector(Limits()) as inspector:
        (finding,) = inspector.look_at([good])
    assert Finding.from_json(finding.to_json()) == finding
