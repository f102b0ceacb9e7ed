"""Why a unit would be computed again, in words: only what differs, each by its own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.forecast import forecast
from assets.outlook import changes
from assets.project import Project
from tests.support.master_projects import WINDOW, MasterProject
from tests.support.report_projects import PERIOD, ReportProject, report_bytes
from tests.support.report_projects import WINDOW as MONTH


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ({"settings": {"ratio": None, "tile_px": 8}}, {"settings": {"tile_px": 8, "ratio": None}}, []),
        ({"settings": {"ratio": None, "psnr_db": 35}}, {"settings": {"psnr_db": 40.0}}, ["settings.psnr_db: 35 became 40"]),
        ({"version": "1"}, {"version": "2"}, ["version: 1 became 2"]),
        ({"scale": [1, 2]}, {"scale": (1, 2)}, []),
        (
            {"masks": [{"band": "q", "bits": [1]}]},
            {"masks": [{"band": "q", "bits": [1, 2]}]},
            ["masks.1.bits: [1] became [1, 2]"],
        ),
        ({"inputs": "a" * 64}, {"inputs": "b" * 64}, ["inputs: aaaaaaaaaaaa... became bbbbbbbbbbbb..."]),
        ({"inputs": {"found": "x"}}, {"inputs": "y"}, ["inputs: none became y", "inputs.found: x became none"]),
        ({}, {"is_whole": True, "a": "b"}, ["a: none became b", "is_whole: none became true"]),
    ],
)
def test_only_what_differs_is_named(old: dict[str, object], new: dict[str, object], words: list[str]) -> None:
    """Leaves are compared, whatever their order and however the ledger gave them back."""
    assert changes(old, new) == words


def reasons(project: Project, window: str) -> list[str]:
    """Why the units of a window would be computed."""
    return [redo.why for redo in forecast(project, window=window, bytes_free=None).redos]


def test_a_setting_of_copies_is_named(tmp_path: Path) -> None:
    """A changed derivative tells its one setting, not all of them twice."""
    made = MasterProject(tmp_path)
    made.add("batch/a.tif")
    made.copies()
    made.configure(extra="[derivative]\ncompression = 'psnr'\npsnr_db = 40\n")
    assert reasons(made.project, WINDOW) == ["settings.psnr_db: none became 40"]


def test_what_a_report_is_read_again_for_is_named(tmp_path: Path) -> None:
    """Rules and a corrected period are told apart, though each makes another revision of the same unit."""
    made = ReportProject(tmp_path)
    uri = made.put("A.pdf", report_bytes("A"))
    made.list_reports([("A", uri)])
    made.run()
    assert reasons(made.project, MONTH) == []
    made.list_reports([("A", uri)], period="2026-02")
    assert reasons(made.project, MONTH) == [f"period: {PERIOD} became 2026-02"]
    made.list_reports([("A", uri)])
    made.change_rules()
    assert reasons(made.project, MONTH) == ["the rules or the registry changed"]
