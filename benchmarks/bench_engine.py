"""The engine against a minimal loop with the same guarantees, its second pass, its retry, and its memory, on small units."""

from __future__ import annotations

import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import Bound, PeakMemory, cpu_s, paired_ratio, report, wall_s
from benchmarks.projects import bare_project, small_units
from resources.staging import Staged, stage

UNITS = 1000
SIZE_BYTES = 10_000


def minimal_loop(folder: Path, units: int, *, group: int = 100) -> None:
    """Stage, fsync, rename without replacing, fsync of the folder, one ledger row; commits and folder syncs in groups."""
    ledger = sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)
    ledger.execute("PRAGMA journal_mode=WAL")
    ledger.execute("PRAGMA synchronous=FULL")
    ledger.execute("CREATE TABLE units (key TEXT PRIMARY KEY, uri TEXT, digest TEXT, size INTEGER, attempts INTEGER)")
    out = folder / "outputs"
    out.mkdir()
    batch = small_units(folder, units, SIZE_BYTES)
    for start in range(0, units, group):
        rows = []
        for task in batch.tasks[start : start + group]:
            result = stage(task)
            assert isinstance(result, Staged)
            final = out / task.path.name.removeprefix(".staged-")
            os.link(task.path, final)
            task.path.unlink()
            rows.append((task.unit_key, final.name, result.digest, result.size_bytes, 1))
        descriptor = os.open(out, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        ledger.execute("BEGIN IMMEDIATE")
        ledger.executemany("INSERT INTO units VALUES (?, ?, ?, ?, ?)", rows)
        ledger.execute("COMMIT")
    ledger.close()


def _engine_pass(
    units: int, *, run_id: str = "first", is_failing: bool = False, root: Path | None = None
) -> tuple[float, float, Path]:
    folder = root or Path(tempfile.mkdtemp())
    project = bare_project(folder, units=units, size=SIZE_BYTES, is_failing=is_failing)
    wall = 0.0

    def work() -> None:
        nonlocal wall
        wall = wall_s(lambda: project.engine.run(project.batch, run_id=f"{run_id}-{secrets.token_hex(4)}"))

    return cpu_s(work), wall, folder


def bench_minimal(pairs: int) -> Bound:
    """Wall time of 1,000 units of 10 KB: engine over minimal loop."""

    def ours(_: int) -> float:
        return _engine_pass(UNITS)[1]

    def theirs(_: int) -> float:
        with tempfile.TemporaryDirectory() as name:
            return wall_s(lambda: minimal_loop(Path(name), UNITS))

    ratio, all_ratios = paired_ratio(ours, theirs, pairs=pairs)
    return Bound("engine / minimal loop, 1,000 units of 10 KB", ratio, 2.0, "x", ", ".join(f"{item:.2f}" for item in all_ratios))


def bench_second_pass(units: int = 10_000) -> Bound:
    """CPU of a second pass over complete units, in milliseconds a unit."""
    with tempfile.TemporaryDirectory() as name:
        _engine_pass(units, root=Path(name))
        cpu, _, _ = _engine_pass(units, run_id="second", root=Path(name))
        project = bare_project(Path(name), units=units, size=SIZE_BYTES)
        summary = project.engine.run(project.batch, run_id="third").summary
        assert (summary.processed, summary.skipped) == (0, units), summary
    return Bound(f"second pass over {units:,} complete units", 1000 * cpu / units, 0.1, "ms CPU/unit")


def bench_retry(units: int = 2_000) -> Bound:
    """CPU of a retry of the tenth that failed, beside that of starting a run, over that of the first pass."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        start = min(_engine_pass(1, root=_fresh(root, f"start{i}"))[0] for i in range(3))
        first = _engine_pass(units, is_failing=True, root=_fresh(root, "job"))[0]
        (root / "job" / "repaired").touch()
        again = _engine_pass(units, run_id="retry", is_failing=True, root=root / "job")[0]
    return Bound(
        "retry of 10 % failed units / first pass, beside one start",
        max(0.0, again - start) / first,
        0.15,
        "x",
        f"CPU: first {first:.2f} s, retry {again:.2f} s, start {start:.2f} s",
    )


def bench_memory() -> Bound:
    """Peak memory of a run over 10,000 units over that of one over 1,000: each in a process of its own."""
    peaks = {units: _peak_of("units", units) for units in (1_000, 10_000)}
    return Bound(
        "peak memory, 10,000 / 1,000 units",
        peaks[10_000] / peaks[1_000],
        1.1,
        "x",
        ", ".join(f"{units:,}: {peak / 1e6:.0f} MB" for units, peak in peaks.items()),
    )


def _fresh(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    return folder


def _peak_of(kind: str, units: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_engine", kind, str(units)], check=True, capture_output=True, text=True
    )
    return int(done.stdout.split()[-1])


def _print_peak(units: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        project = bare_project(Path(name), units=units, size=SIZE_BYTES)
        with PeakMemory() as peak:
            project.engine.run(project.batch, run_id="first")
        print(peak.bytes)


def main() -> int:
    """Print every bound of the engine; 1 when one is broken."""
    if sys.argv[1:2] == ["units"]:
        _print_peak(int(sys.argv[2]))
        return 0
    return report([bench_minimal(5), bench_second_pass(), bench_retry(), bench_memory()])


if __name__ == "__main__":
    sys.exit(main())
