"""What a person sees and does in Dagster's own pages: real web server, daemon, code server and runs, in a real browser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assets.project import Project, open_project
from pipelines.findings import LETTERS_CHECK, UNITS_CHECK
from resources.ledger import UnitRow
from resources.units import UnitState
from tests.support.browser import PATIENCE_S, Viewer, chromium, viewer
from tests.support.dagster_processes import ROOT, Processes, eventually, free_port
from tests.support.hills import FIRST, SECOND, write_project
from tests.support.receiver import Receiver, receiving

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TILES = "tiles"
FAULTS = (
    f"stage.open~true_colour {FIRST} 0-2-0=transient*3;"
    f"stage.open~{FIRST} 0-3-3=transient*3;"
    f"validate.done~greenness {FIRST} 0-4-3=reject"
)
"""Three units in two partitions find their source unavailable, once each; one more unit is unfit for good."""

FAILED_UNITS = {("true_colour", "0-2-0"), ("true_colour", "0-3-3"), ("greenness", "0-3-3")}
QUARANTINED_UNIT = ("greenness", "0-4-3")
LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


@dataclass
class Site:
    """A running Dagster over a small project of two windows, six partitions each, and what alerts came of it."""

    project: Project
    processes: Processes
    receiver: Receiver

    def units(self, window: str | None = None) -> list[UnitRow]:
        """Units of the tiles."""
        return list(self.project.ledger.units(asset=TILES, window=window))

    def launch_window(self, window: str) -> str:
        """Run a whole window as its schedule does: one run over the range of all its tiles, through the queue. Its id."""
        tiles = list(self.project.grid.partitions)
        tags = {
            "dagster/asset_partition_range_start": f"{window}|{tiles[0]}",
            "dagster/asset_partition_range_end": f"{window}|{tiles[-1]}",
            "tilewright/batch_window": window,
        }
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "tilewright",
            "jobName": "window_tiles",
            "assetSelection": [{"path": [TILES]}],
        }
        params = {
            "selector": selector,
            "mode": "default",
            "runConfigData": {},
            "executionMetadata": {"tags": [{"key": name, "value": value} for name, value in tags.items()]},
        }
        found = self.processes.ask(LAUNCH, {"params": params})["launchPipelineExecution"]
        assert found["__typename"] == "LaunchRunSuccess", found
        return str(found["run"]["runId"])

    def status(self, run_id: str) -> str:
        """Dagster's status of a run."""
        query = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
        found = self.processes.ask(query, {"id": run_id})
        return str(found["runOrError"]["status"]) if found else ""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """`tilewright dev` over a project whose source fails at first, and a receiver of its alerts."""
    chromium()
    path = write_project(tmp_path)
    with receiving() as receiver:
        environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"} | {
            "PYTHONPATH": str(ROOT),
            "TILEWRIGHT_ALERTS__URLS": receiver.url,
            "TILEWRIGHT_FAULTS": FAULTS,
            "TILEWRIGHT_FAULTS_DIR": str(tmp_path / "faults"),
        }
        processes = Processes(tmp_path, free_port(), environment)
        # opened here first, so that the ledger is made once
        found = Site(open_project(path), processes, receiver)
        try:
            processes.start("pipelines.cli", "--config", str(path), "dev", "--port", str(processes.port), log="dev.log")
            eventually(lambda: processes.ask("{ version }"), timeout_s=120)
            yield found
        finally:
            processes.stop()


def test_a_person_backfills_what_failed_and_only_that_is_computed(site: Site, tmp_path: Path) -> None:
    """Red partitions, a backfill of failed and missing ones by clicks, only incomplete units computed, check and alert seen."""
    run_id = site.launch_window(FIRST)
    with viewer(f"http://127.0.0.1:{site.processes.port}", pictures=tmp_path / "pictures") as view:
        see_the_graph(view)
        eventually(lambda: site.status(run_id) in ("FAILURE", "SUCCESS"), timeout_s=PATIENCE_S)
        assert site.status(run_id) == "FAILURE"
        before = {row.key: row for row in site.units()}
        assert {(row.product, row.tile) for row in before.values() if row.state is UnitState.FAILED} == FAILED_UNITS
        complete = {key: row for key, row in before.items() if row.state is UnitState.COMPLETE}
        assert len(complete) == 44
        stamps = {key: stamp(site.project, row) for key, row in complete.items()}
        histories = {key: site.project.ledger.history(key) for key in complete}

        see_red_partitions(view, site)
        see_checks(view, "44 of 48 planned units are complete, each with its own output")
        see_the_alert(view, site)
        launched_before = {row.run_id for row in site.project.ledger.runs()}
        launch_backfill(view)

        # the ledger says complete a moment before Dagster says materialized
        eventually(lambda: count(site, UnitState.COMPLETE) == 95, timeout_s=150)
        view.open("/assets/tiles?view=partitions", until="Materialized (12)")
        view.shows("Failed (0)")
        view.shows("Missing (0)")
        view.picture("7-partitions-after-the-backfill")
        eventually(lambda: not site.project.ledger.runs(unended=True), timeout_s=PATIENCE_S)

        after = {row.key: row for row in site.units()}
        assert {key: stamp(site.project, after[key]) for key in complete} == stamps
        assert all(attempts(site.project, key) == attempts_in(histories[key]) == 1 for key in complete)
        assert all(after[key].state is UnitState.COMPLETE and after[key].run_id == run_id for key in complete)
        assert {(row.product, row.tile) for row in after.values() if attempts(site.project, row.key) == 2} == FAILED_UNITS
        assert {attempts(site.project, row.key) for row in site.units(SECOND)} == {1}
        runs = [row for row in site.project.ledger.runs() if row.asset == TILES and row.run_id not in launched_before]
        names = list(site.project.grid.partitions)
        assert sorted(name for row in runs for name in row.partitions) == sorted(
            [*(f"{FIRST}|{names[place]}" for place in (1, 4)), *(f"{SECOND}|{name}" for name in names)]
        )
        assert sum(row.summary["processed"] for row in runs if row.summary) == 3 + 48
        assert sum(row.summary["skipped"] for row in runs if row.summary) == 16 - 3

        view.open("/runs?view=backfills", until="8 partitions")
        view.picture("8-backfills")
        see_checks(view, re.compile(r"\d+ of \d+ planned units are complete, each with its own output"), after=True)
        assert len(site.receiver.titles()) == 1
        assert [toast for toast in view.toasts() if not toast.startswith("Created backfill")] == []
        assert view.complaints == []
        assert view.hosts == {f"127.0.0.1:{site.processes.port}"}


def see_the_graph(view: Viewer) -> None:
    """The asset graph shows every asset by name, joined by edges."""
    view.open("/asset-groups/", until="window_report")
    nodes = view.page.locator("svg foreignObject")
    for name in ("scene_manifest", "tiles", "tile_catalogue", "window_report"):
        nodes.filter(has_text=name).first.wait_for()
    view.picture("1-asset-graph")


def see_red_partitions(view: Viewer, site: Site) -> None:
    """The scenes of the first window are told; two of its partitions are red, its others green; the second window is missing."""
    view.open("/assets/scene_manifest?view=overview", until="2 ACCEPTED")
    view.picture("2-scene-manifest")
    view.open("/assets/tiles?view=overview", until="Cloud Optimized GeoTIFFs")
    view.shows("44")
    for text in ("scenes_to_tiles", "mapping", "gdal", "cog", "SETTLED, with quarantined units"):
        view.shows(text)
    pictures = view.page.locator("img[src^='data:image/webp']")
    eventually(lambda: pictures.count() == 2, timeout_s=PATIENCE_S)
    assert pictures.first.evaluate("picture => picture.naturalWidth") == 64
    view.picture("2-asset-overview")
    view.open("/assets/tiles?view=partitions", until="Failed (2)")
    view.shows("Materialized (4)")
    view.shows("Missing (6)")
    view.page.get_by_title(FIRST, exact=True).first.click()
    names = list(site.project.grid.partitions)
    rows = {name: view.page.get_by_title(name, exact=True).first.locator("xpath=../..") for name in names}
    reds = eventually(lambda: red_ones(rows), timeout_s=PATIENCE_S)
    assert reds == {names[1], names[4]}
    rows[names[1]].click()
    view.shows("failed, and did not materialize this asset")
    view.picture("3-failed-partition")
    rows[names[5]].click()
    view.shows("greenness 2024-06-01 0-4-3")
    view.picture("4-partition-with-a-quarantined-unit")


def red_ones(rows: dict[str, Any]) -> set[str]:
    """Partitions whose only mark is red, once each row has but one mark: that of the chosen window."""
    marks = {name: row.locator("div[style*='--color-accent-']") for name, row in rows.items()}
    if any(mark.count() != 1 for mark in marks.values()):
        return set()
    return {name for name, mark in marks.items() if "--color-accent-red" in mark.get_attribute("style")}


def see_checks(view: Viewer, words: str | re.Pattern[str], *, after: bool = False) -> None:
    """The checks page shows what the run-end check found, and the standing check names the dead letter."""
    view.open(f"/assets/tiles?view=checks&checkDetail={UNITS_CHECK}", until="This is a blocking asset check")
    view.page.get_by_text(words).first.wait_for()
    view.shows("Passed")
    view.picture("9-check-after-the-backfill" if after else "5-check-of-the-failed-run")
    view.open(f"/assets/tiles?view=checks&checkDetail={LETTERS_CHECK}", until="contract_violated")
    assert "fault put in on purpose" in view.text()
    view.picture("9-dead-letters-after" if after else "5-dead-letters")


def see_the_alert(view: Viewer, site: Site) -> None:
    """One alert about the unfit unit came by HTTP, and the page of the sensor that sent it says so."""
    (title,) = eventually(site.receiver.titles, timeout_s=PATIENCE_S)
    product, tile = QUARANTINED_UNIT
    assert re.search(rf"Quarantined: .*{product}.*{FIRST}.*{tile}.*contract_violated", title), title
    view.open("/locations/tilewright/sensors/alerts", until="into the outbox, then to every channel")
    view.picture("5-alerts-sensor")


def launch_backfill(view: Viewer) -> None:
    """Open the dialog, choose all windows and tiles, tick 'only failed and missing', launch."""
    view.open("/assets/tiles?view=partitions", until="Failed (2)")
    view.page.get_by_role("button", name="Materialize").first.click()
    dialog = view.page.get_by_role("dialog")
    for dimension in (0, 1):
        dialog.get_by_role("button", name="All", exact=True).nth(dimension).click()
    dialog.get_by_text("Backfill only failed and missing partitions").click()
    dialog.get_by_text("8 partitions").wait_for()
    view.picture("6-backfill-dialog")
    dialog.get_by_role("button", name="Launch backfill").click()
    view.shows("Created backfill")
    view.picture("6-backfill-launched")


def count(site: Site, state: UnitState) -> int:
    """How many units of tiles are in a state."""
    return sum(row.state is state for row in site.units())


def stamp(project: Project, row: UnitRow) -> tuple[int, int, int]:
    """Inode, modification time and size of a unit's output: the same as long as nobody wrote it again."""
    found = project.store.path(row.output_uri).stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def attempts(project: Project, key: str) -> int:
    """Attempts at a unit so far."""
    return attempts_in(project.ledger.history(key))


def attempts_in(history: list[Any]) -> int:
    """Attempts in a history, skips left out."""
    return sum(entry.what == "attempt" for entry in history)
