"""The work of the benchmarks' small units. Nothing heavy is imported: workers load this module."""

from __future__ import annotations

from pathlib import Path

from resources.errors import ErrorKind, TransientError, UnitRejected


def write_block(key: str, size: int, path: Path) -> dict[str, int]:
    """Write `size` bytes that begin with the unit's key."""
    with path.open("wb") as stream:
        stream.write(key.encode().ljust(size, b"."))
    return {"size": size}


def fail_until(flag: Path, key: str, size: int, path: Path) -> dict[str, int]:
    """Fail as an unreachable source does, until `flag` exists."""
    if not flag.exists():
        raise TransientError("the source is away", kind=ErrorKind.SOURCE_UNAVAILABLE)
    return write_block(key, size, path)


def check_block(key: str, path: Path) -> None:
    """Raise `UnitRejected` unless the file begins with the unit's key."""
    with path.open("rb") as stream:
        if stream.read(len(key)) != key.encode():
            raise UnitRejected(f"{path} is not of unit {key}", kind=ErrorKind.INVALID_OUTPUT)
