"""Unit keys: what they mean is fixed for ever, on every machine and in every process."""

from __future__ import annotations

import hashlib
import io
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.keys import audit_hash, canonical, digest_file, digest_of, digest_stream, unit_key

ROOT = Path(__file__).parents[2]

EXAMPLE = {
    "operation": "tile",
    "version": "1",
    "settings": {"resampling": "bilinear", "rescale": [0.0, 3000.5], "nodata": None, "masks": [{"band": "qa", "bits": [3, 4]}]},
    "destination": {"product": "rgb", "window": "2026-01-01", "tile": "12-840-1524"},
    "inputs": ["a" * 64, "b" * 64],
}
EXAMPLE_KEY = "78627c9fe135ab333072a9c5d1d7d028ba69ba52ed028127fea3d1ea3e828e39"


def test_the_key_of_an_example_is_what_it_always_was() -> None:
    """Golden digest: when this fails, every output made so far would be made again. Change the scheme's version, not this."""
    assert unit_key(**EXAMPLE) == EXAMPLE_KEY


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e22, "1e+22"),
        (2.0**53, "9007199254740992.0"),
        ("ä☂\n", '"\\u00e4\\u2602\\n"'),
        ((1, 2), "[1,2]"),
        ({"b": 1, "a": [None]}, '{"a":[null],"b":1}'),
        (datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05.000000+00:00"'),
    ],
)
def test_canonical_forms_are_fixed(value: object, text: str) -> None:
    """Each kind of value has one text, pure ASCII, whatever the machine."""
    assert canonical(value) == text


def test_equal_meaning_is_equal_text() -> None:
    """Order of names, list or tuple, whole floats and zones make no difference."""
    moment = datetime(2026, 1, 2, 12, tzinfo=UTC)
    there = moment.astimezone(timezone(timedelta(hours=-7)))
    assert canonical({"x": (1.0, there), "a": 2}) == canonical({"a": 2.0, "x": [1, moment]})


def test_order_of_a_list_is_meaning() -> None:
    """A list is what its order says; whether order means anything is the caller's to decide."""
    assert digest_of([1, 2]) != digest_of([2, 1])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_must_be_named(number: float) -> None:
    """A number that JSON cannot say is refused, not left to chance."""
    with pytest.raises(ValueError, match="name it as text"):
        canonical({"nodata": number})


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", Path("x"), object(), {1: "a"}])
def test_values_without_one_meaning_are_refused(value: object) -> None:
    """Sets, bytes, paths, objects and mappings with names that are no text are refused by type."""
    with pytest.raises(TypeError, match="a key"):
        canonical(value)


@pytest.mark.parametrize("part", sorted(EXAMPLE))
def test_every_part_matters(part: str) -> None:
    """Changing operation, version, settings, destination or inputs changes the key."""
    assert unit_key(**EXAMPLE | {part: "another"}) != unit_key(**EXAMPLE)


@pytest.mark.parametrize(
    "surroundings", [{"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}]
)
def test_keys_do_not_depend_on_the_process(surroundings: Mapping[str, str]) -> None:
    """Another process with another hash seed, locale and time zone computes the same key and the same digests."""
    program = (
        "from datetime import datetime\n"
        "from resources.keys import digest_of, unit_key\n"
        "from tests.unit.test_keys import EXAMPLE\n"
        "print(unit_key(**EXAMPLE), digest_of({'when': datetime(2026, 1, 1), 'what': {'ü': 1, 'a': 0.1, 'z': {}}}))"
    )
    made = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in ("LC_ALL", "TZ")} | dict(surroundings),
    )
    here = digest_of({"when": datetime(2026, 1, 1), "what": {"ü": 1, "a": 0.1, "z": {}}})
    assert made.stdout.split() == [EXAMPLE_KEY, here]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(plain)
def test_any_plain_value_has_a_stable_ascii_text(value: object) -> None:
    """Every plain value serialises to ASCII, and reading that text back and serialising again changes nothing."""
    import json

    text = canonical(value)
    assert text.isascii()
    assert canonical(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers(), min_size=2), st.randoms())
def test_order_of_names_never_matters(value: dict[str, int], random: object) -> None:
    """A mapping built in any order has one text."""
    names = list(value)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert canonical({name: value[name] for name in names}) == canonical(value)


def test_audit_hash_covers_key_and_reason() -> None:
    """The audit hash is sha256 of `unit_key:reason`, in UTF-8."""
    assert audit_hash("k", "zu groß") == hashlib.sha256("k:zu groß".encode()).hexdigest()
    assert audit_hash("k", "a") != audit_hash("k", "b")


def test_files_are_digested_in_blocks(tmp_path: Path) -> None:
    """The digest of a file is sha256 of its bytes, over any number of blocks, also of none."""
    content = bytes(range(256)) * 10_000
    (tmp_path / "f").write_bytes(content)
    assert digest_file(tmp_path / "f") == digest_stream(io.BytesIO(content)) == hashlib.sha256(content).hexdigest()
    (tmp_path / "f").write_bytes(b"")
    assert digest_file(tmp_path / "f") == hashlib.sha256(b"").hexdigest()
