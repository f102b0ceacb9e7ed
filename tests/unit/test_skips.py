"""The rule that CI allows no unexpected skip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import CI_VARIABLE, is_allowed

ROOT = Path(__file__).parents[2]


def run_pytest(folder: Path, body: str, *, in_ci: bool) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.support.skips"]\n')
    (folder / "test_it.py").write_text(body)
    environment = {name: value for name, value in os.environ.items() if name != CI_VARIABLE}
    environment |= {"PYTHONPATH": str(ROOT)} | ({CI_VARIABLE: "1"} if in_ci else {})
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), "-q", str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


SKIPPED = "import pytest\n\ndef test_one():\n    pytest.skip('no chromium here')\n\ndef test_two():\n    pass\n"
MODULE_SKIPPED = "import pytest\npytest.skip('no chromium here', allow_module_level=True)\n"


@pytest.mark.parametrize("body", [SKIPPED, MODULE_SKIPPED], ids=["test", "module"])
def test_an_unexpected_skip_fails_a_ci_run(tmp_path: Path, body: str) -> None:
    """In CI a skip that is not on the list fails the run and is named."""
    done = run_pytest(tmp_path, body, in_ci=True)
    assert done.returncode == 1, done.stdout
    assert "no chromium here" in done.stdout.split("skips that CI does not allow")[1]


def test_a_skip_at_home_is_only_said(tmp_path: Path) -> None:
    """Outside CI the same skip leaves the run green."""
    done = run_pytest(tmp_path, SKIPPED, in_ci=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        ("needs ../shared/data/scenes, which is not beside this clone", True),
        ("root ignores file permissions", True),
        ("no PostgreSQL server could be started", False),
    ],
)
def test_the_list_of_allowed_reasons(reason: str, allowed: bool) -> None:
    """Only what a clone cannot have is allowed to be missing."""
    assert is_allowed(reason) is allowed
