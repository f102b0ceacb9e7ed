"""Keys of copies: made of content and settings alone, equal on every machine, and moved by whatever moves bytes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assets.digitization.capturing import list_masters
from assets.digitization.copies import copy_unit, window_units
from assets.digitization.derivation import CopySettings
from assets.digitization.identification import DEFAULT_LIMITS
from resources.ledger.facts import Capture
from tests.support.master_projects import WINDOW, MasterProject
from tests.support.masters import identified, picture, write_master

SHA256 = "ab" * 32
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    """A capture of a small master."""
    facts = identified(write_master(tmp_path / "a.tif", picture()), DEFAULT_LIMITS).to_json()
    return Capture("box/a.tif", SHA256, 1, 1, "box", WINDOW, AT, facts)


def test_a_copys_key_is_this(capture: Capture) -> None:
    """A golden key: copies that were made are found again by the next version."""
    assert copy_unit(capture, CopySettings()).key == "86ca9b1131b165b4d8c6ac79a6b08ec74bb26eed217981b87201fab24b2beb65"


def test_names_windows_and_times_move_no_key(capture: Capture) -> None:
    """The content alone does."""
    other = replace(capture, uri="x/y.tif", batch="x", window="2026-01-05", mtime_ns=7, captured_at=AT.replace(year=2027))
    assert copy_unit(other, CopySettings()).key == copy_unit(capture, CopySettings()).key
    assert copy_unit(replace(capture, sha256="cd" * 32), CopySettings()).key != copy_unit(capture, CopySettings()).key


@pytest.mark.parametrize("change", [{"ratio": 8.0}, {"psnr_db": 40.0}, {"tile_px": 512}, {"cmyk_profile_sha256": "00" * 32}])
def test_every_setting_moves_the_key(capture: Capture, change: dict[str, Any]) -> None:
    """Each of them can change a copy's bytes."""
    assert copy_unit(capture, replace(CopySettings(), **change)).key != copy_unit(capture, CopySettings()).key


_KEYS = """
import json, sys
from assets.digitization.copies import window_units
from assets.project import open_project
project = open_project(sys.argv[1])
print(json.dumps(sorted([unit.key, unit.output_uri] for unit in window_units(project, sys.argv[2], []))))
"""


def test_keys_are_equal_in_another_process_locale_and_order_of_files(tmp_path: Path) -> None:
    """Masters written in another order, planned under another hash seed, locale and time zone."""
    planned = []
    for number in range(2):
        made = MasterProject(tmp_path / str(number))
        names = [f"box/{name}.tif" for name in ("b", "a", "Z", "\u00e9", "i", "\u0130")]
        random.Random(number).shuffle(names)
        for name in names:
            made.add(name, seed=ord(name[4]))
        list_masters(made.project, now=AT.replace(month=2))
        for seed, locale in (("1", "C"), ("2", "tr_TR.UTF-8")):
            environment = {"PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": "Asia/Tokyo", "PATH": "", "PYTHONUTF8": "1"}
            command = [sys.executable, "-c", _KEYS, str(made.path), WINDOW]
            done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
            planned.append(json.loads(done.stdout))
        planned.append(sorted([unit.key, unit.output_uri] for unit in window_units(made.project, WINDOW, [])))
    assert all(found == planned[0] for found in planned)
    assert len(planned[0]) == 6
