"""Unit keys: sha256 over a canonical, versioned serialisation of what is to be done.

Belongs here: the serialisation and nothing else. What goes into a key is each asset's to say. A key never sees a run id, a clock,
an attempt, a list position that means nothing, or a setting that cannot change the bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

SCHEME = "tilewright-key/1"
SHORT_KEY_LENGTH = 16
_BLOCK_BYTES = 1 << 20


def canonical(value: object) -> str:
    """Serialise `value` so that equal meaning gives equal text on every machine, process and locale.

    Mappings are sorted by key, times become UTC ISO 8601 (a time without a zone is UTC), floats are written by their shortest
    round-trip form, and an integral float equals its integer. Raises `TypeError` for anything else, and `ValueError` for a
    number that is not finite: such a value must be named by the caller (for example `"nan"`), never left to chance.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a key cannot hold the number {value!r}; name it as text")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, datetime):
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware.isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {_key_text(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item) for item in value]
    raise TypeError(f"a key cannot hold a {type(value).__name__}: {value!r}")


def _key_text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a key's mapping needs text names, found {name!r}")
    return name


def digest_of(value: object) -> str:
    """Sha256 (64 hex) of the canonical form of `value`."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def unit_key(*, operation: str, version: str, settings: object, destination: object, inputs: object) -> str:
    """The idempotency key of one unit of work (64 hex)."""
    return digest_of(
        {
            "scheme": SCHEME,
            "operation": operation,
            "version": version,
            "settings": settings,
            "destination": destination,
            "inputs": inputs,
        }
    )


def audit_hash(unit_key: str, reason: str) -> str:
    """`sha256(unit_key : reason)`: says later that a dead letter's reason was not edited."""
    return hashlib.sha256(f"{unit_key}:{reason}".encode()).hexdigest()


def digest_file(path: Path | str) -> str:
    """Sha256 (64 hex) of a file's bytes, read in blocks. Raises `OSError`; whether to retry is the caller's table to say."""
    with open(path, "rb") as stream:
        return digest_stream(stream)


def digest_stream(stream: BinaryIO) -> str:
    """Sha256 (64 hex) of what is left in `stream`."""
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()
