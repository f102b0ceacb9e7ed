"""`make bench`: every benchmark in a process of its own, one after the other; the exit code says whether all bounds were met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run `bench_*` in turn and name those that missed a bound."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    missed = []
    for name in names:
        sys.stdout.write(f"\n== {name.removeprefix('bench_')}\n")
        sys.stdout.flush()
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0:
            missed.append(name)
    sys.stdout.write(f"\n{'missed: ' + ', '.join(missed) if missed else 'all bounds met'}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
