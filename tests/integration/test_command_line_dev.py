"""`tilewright dev`: Dagster's processes over a project, started from wherever its user happens to be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.dagster_processes import ROOT, Processes, eventually, free_port
from tests.support.hills import write_project

pytestmark = pytest.mark.slow

LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename
  ... on PythonError { message } } } } } }"""


def test_scripts_beside_the_configuration_are_left_alone(tmp_path: Path) -> None:
    """A user's gql.py and assets.py in the project's folder are taken for no library: the page comes up with the code loaded."""
    path = write_project(tmp_path)
    for name in ("gql", "assets"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a script of the user')\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "DAGSTER_"))}
    processes = Processes(tmp_path, free_port(), outer | {"PYTHONPATH": str(ROOT)})
    try:
        child = processes.start("pipelines.cli", "--config", path.name, "dev", "--port", str(processes.port), log="dev.log")
        eventually(lambda: child.poll() is not None or processes.ask(LOCATIONS), timeout_s=120)
        assert child.poll() is None, (tmp_path / "dev.log").read_text()[-2000:]
        entries = processes.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        assert [(item["name"], item["locationOrLoadError"]["__typename"]) for item in entries] == [
            ("tilewright", "RepositoryLocation")
        ], entries
    finally:
        processes.stop()
