"""Digitization over real masters through Dagster: two passes, twins, a corrupt master, a rewritten one, fixity, the export."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from lxml import etree

from assets.digitization.events import EventType
from assets.digitization.fixity import open_mismatches
from assets.digitization.manifest import read_manifest
from assets.digitization.shape import COPIES, EVENTS, FIXITY, MANIFEST, PREMIS, REPORT
from pipelines.arrivals_sensor import arrivals_tick
from pipelines.definitions import build_defs, parts_of
from pipelines.findings import UNITS_CHECK
from pipelines.fixity import FIXITY_CHECK, fixity_tick
from pipelines.reconciling_sensors import tick
from resources.ledger import UnitRow
from resources.units import UnitState
from tests.support.master_projects import ARRIVED, WINDOW, MasterProject
from tests.support.masters import picture, write_pages
from tests.support.sources import SHARED

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in beta", "ignore:.*is currently in preview")
SCHEMA = SHARED / "schemas" / "premis-3.0.xsd"
PERIOD = "2026-01"
LATE = datetime(2026, 1, 30, 23, tzinfo=UTC)
ASSETS = (MANIFEST, COPIES, EVENTS, PREMIS, REPORT)


@dataclass
class Stand:
    """A project of digitization with its definitions and instance."""

    made: MasterProject
    instance: dg.DagsterInstance

    @property
    def definitions(self) -> dg.Definitions:
        return build_defs(project=self.made.project)

    def job(self, name: str, partition: str = WINDOW) -> dg.ExecuteInProcessResult:
        """One run of a job."""
        found = self.definitions.resolve_job_def(name)
        return found.execute_in_process(instance=self.instance, partition_key=partition, raise_on_error=False)

    def window(self) -> list[dg.ExecuteInProcessResult]:
        """All that a window's runs do."""
        return [self.job("window_manifest"), self.job("window_copies"), self.job("window_outputs")]

    def numbers(self) -> dict[str, tuple[int, ...]]:
        """Processed, skipped and quarantined, as the last materialization of each asset tells them."""
        found = {}
        for name in (COPIES, EVENTS, PREMIS, REPORT):
            event = self.instance.get_latest_materialization_event(dg.AssetKey([name]))
            assert event is not None
            assert event.asset_materialization is not None
            told = event.asset_materialization.metadata
            found[name] = tuple(int(str(told[key].value)) for key in ("run_processed", "run_skipped", "quarantined"))
        return found

    def rows(self, asset: str = COPIES) -> list[UnitRow]:
        return list(self.made.project.ledger.planned(asset, [WINDOW]))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A project without masters yet."""
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield Stand(MasterProject(tmp_path / "project"), instance)


def test_a_batch_wakes_its_window_and_a_second_pass_does_nothing(stand: Stand) -> None:
    """Masters in, everything out; the second pass processes 0, skips all, changes no byte and adds no event."""
    for number in range(5):
        stand.made.add(f"box/{number}.tif", seed=number)
    stand.made.add("box/twin of 3.tif", seed=3)
    watched = parts_of(stand.made.project).watched
    arrived = arrivals_tick(stand.instance, stand.made.project, watched.units, watched.manifest, cursor=None)
    assert [request.tags["tilewright/batch_window"] for request in arrived.run_requests or ()] == [WINDOW]
    first = stand.window()
    assert all(result.success for result in first)
    checks = [item for result in first for item in result.get_asset_check_evaluations() if item.check_name == UNITS_CHECK]
    assert {item.asset_key.to_user_string() for item in checks} == set(ASSETS)
    assert all(item.passed for item in checks)
    numbers = stand.numbers()
    assert (numbers[COPIES], numbers[EVENTS], numbers[PREMIS]) == ((5, 0, 0), (20, 0, 0), (7, 0, 0))
    outputs, events = stand.made.outputs(), stand.made.event_ids()
    assert len(events) == len(set(events)) == 20
    assert all(result.success for result in stand.window())
    assert {found[0] for found in stand.numbers().values()} == {0}
    assert stand.numbers()[COPIES] == (0, 5, 0)
    assert (stand.made.outputs(), stand.made.event_ids()) == (outputs, events)


def test_equal_bytes_under_two_names_are_one_copy_and_two_objects(stand: Stand) -> None:
    """Also where the second name comes in another window: the copy is the first's, the documents are two."""
    stand.made.add("box1/a.tif", seed=1)
    stand.made.add("box2/b.tif", seed=1, arrived=ARRIVED + timedelta(days=1))
    second = "2026-01-02"
    for window in (WINDOW, second):
        for job in ("window_copies", "window_outputs"):
            assert stand.job(job, window).success
    ledger = stand.made.project.ledger
    assert [len(list(ledger.planned(COPIES, [window]))) for window in (WINDOW, second)] == [1, 0]
    documents = {name for name in stand.made.outputs() if name.endswith(".xml")}
    assert [name.split("/")[1] for name in sorted(documents)] == [WINDOW, second]
    assert len(stand.made.event_ids()) == 4
    texts = [(stand.made.project.config.store_dir / name).read_text() for name in sorted(documents)]
    copy = stand.rows()[0].output_uri
    assert all(copy in text for text in texts)
    pages = [(stand.made.project.config.store_dir / f"{REPORT}/{window}.html").read_text() for window in (WINDOW, second)]
    assert ["Contents of other windows" in page for page in pages] == [False, True]
    assert "box1/a.tif" in pages[1]


def test_a_corrupt_master_stops_no_other(stand: Stand) -> None:
    """Refused at the door or found when it is decoded: one dead letter each, the rest is derived, the partition is settled."""
    stand.made.add("box/good.tif", seed=1)
    stand.made.add("box/none.tif", content=b"no picture")
    whole = stand.made.add("box/cut.tif", seed=2)
    stand.made.add("box/cut.tif", content=whole.read_bytes()[:-700])
    lossy = stand.made.masters / "box/lossy.tif"
    _damaged_jpeg(lossy)
    stand.made.arrive(lossy)
    assert all(result.success for result in stand.window())
    assert stand.numbers()[COPIES] == (1, 0, 3)
    letters = {letter.kind: letter.reason for letter in stand.made.project.ledger.dead_letters()}
    assert set(letters) == {"not_a_raster", "corrupt_input"}
    manifest = {row["uri"]: row for row in read_manifest(stand.made.project.store.path(f"{MANIFEST}/{WINDOW}.parquet"))}
    assert manifest["box/none.tif"]["verdict"] == "REFUSED"
    assert manifest["box/good.tif"]["photometric"] == "rgb"
    page = stand.made.project.store.path(f"{REPORT}/{WINDOW}.html").read_text()
    assert "box/none.tif" in page


def _damaged_jpeg(path: Path) -> None:
    from PIL import Image

    Image.fromarray(picture(200, 200)).save(path, compression="jpeg")
    content = bytearray(path.read_bytes())
    middle = content.find(b"\xff\xda") + 400
    content[middle : middle + 60] = b"\xff\xd9" * 30
    path.write_bytes(content)


def test_a_sound_file_under_the_name_of_a_refused_one_heals_the_window(stand: Stand) -> None:
    """The refused unit is retired, its dead letter closes, and the copy is made."""
    stand.made.add("box/a.tif", content=b"no picture")
    stand.job("window_copies")
    assert stand.made.project.ledger.letter_counts()
    stand.made.add("box/a.tif", seed=4)
    assert stand.job("window_copies").success
    assert [row.state for row in stand.rows()] == [UnitState.COMPLETE]
    assert not stand.made.project.ledger.letter_counts()


def test_several_pages_are_one_folder_promoted_whole(stand: Stand) -> None:
    """And its digest in the events is that of the folder."""
    book = stand.made.masters / "box" / "book.tif"
    book.parent.mkdir()
    stand.made.arrive(write_pages(book, [picture(20, 30, seed=1), picture(10, 20, bands=1, seed=2)]))
    assert all(result.success for result in stand.window())
    (row,) = stand.rows()
    assert row.output_uri.endswith(".pages")
    assert [path.name for path in sorted(stand.made.project.store.path(row.output_uri).iterdir())] == ["0001.jp2", "0002.jp2"]
    (event,) = stand.made.project.ledger.events(event_type=EventType.MIGRATION.value)
    assert event.detail["copy_digest"] == row.output_digest


def test_the_export_is_valid_and_names_rights(stand: Stand) -> None:
    """Every document passes the schema."""
    if not SCHEMA.is_file():
        pytest.skip("the PREMIS schema is not there: ../shared/data/schemas/premis-3.0.xsd")
    stand.made.configure(extra='[rights]\nbasis = "license"\nterms = "CC BY 4.0"\nacts = ["disseminate"]\n')
    stand.made.add("box/a.tif", seed=1)
    stand.made.add("box/none.tif", content=b"no picture")
    assert all(result.success for result in stand.window())
    schema = etree.XMLSchema(etree.parse(SCHEMA))
    documents = sorted(stand.made.project.store.path(f"{PREMIS}/{WINDOW}").glob("*.xml"))
    assert len(documents) == 1
    schema.assertValid(etree.parse(documents[0]))
    assert "CC BY 4.0" in documents[0].read_text()


def test_a_rewritten_master_is_a_fixity_discrepancy_and_changes_no_key(stand: Stand) -> None:
    """Its copy is skipped; the source check tells it at once, the fixity check by name with both digests until restored."""
    stand.made.at(ARRIVED + timedelta(hours=1))
    path = stand.made.add("box/a.tif", seed=1)
    stand.made.add("box/b.tif", seed=2)
    stand.window()
    (before, after) = (path.read_bytes(), path.read_bytes() + b"rewritten tags")
    keys = {row.key for row in stand.rows()}
    path.write_bytes(after)
    results = stand.window()
    assert {row.key for row in stand.rows()} == keys
    assert stand.numbers()[COPIES][0] == 0
    left_out = [item for item in results[0].get_asset_check_evaluations() if item.check_name == "no_master_left_out"]
    assert [item.passed for item in left_out] == [False]
    project = stand.made.project
    stand.made.at(LATE)
    watched = parts_of(project).watched.more[0]
    result = stand.job("fixity_period", PERIOD)
    assert result.success
    (check,) = [item for item in result.get_asset_check_evaluations() if item.check_name == FIXITY_CHECK]
    assert not check.passed
    assert "box/a.tif" in str(check.description)
    (found,) = open_mismatches(project, now=project.ledger.clock())
    assert (found.expected, found.found) == (hashlib.sha256(before).hexdigest(), hashlib.sha256(after).hexdigest())
    fixity_tick(stand.instance, project, watched, cursor=None)
    assert [alert.title for alert in project.ledger.due_alerts(now=project.ledger.clock(), repeat_every=timedelta(hours=1))]
    assert path.read_bytes() == after
    path.write_bytes(before)
    stand.made.at(LATE + timedelta(hours=2))
    assert stand.job("fixity_period", PERIOD).success
    assert open_mismatches(project, now=project.ledger.clock()) == []


def test_a_master_that_is_gone_is_looked_for_the_same_day(stand: Stand) -> None:
    """And found missing, long before its turn in the period."""
    stand.made.at(ARRIVED + timedelta(hours=1))
    stand.made.add("box/a.tif", seed=1)
    stand.made.add("box/b.tif", seed=2)
    stand.window()
    (stand.made.masters / "box/a.tif").unlink()
    stand.made.at(ARRIVED + timedelta(hours=2))
    assert stand.job("fixity_period", PERIOD).success
    (found,) = open_mismatches(stand.made.project, now=stand.made.project.ledger.clock())
    assert (found.object, found.found) == ("box/a.tif", "nothing: it is not there")


def test_a_rewritten_master_is_read_the_same_day(stand: Stand) -> None:
    """Long before its turn in the period; a second run of the day reads nothing again, and nothing is repaired."""
    stand.made.at(ARRIVED + timedelta(hours=1))
    path = stand.made.add("box/a.tif", seed=1)
    stand.window()
    path.write_bytes(b"rewritten")
    stand.made.at(ARRIVED + timedelta(hours=2))
    for _ in range(2):
        assert stand.job("fixity_period", PERIOD).success
    (event,) = stand.made.project.ledger.events(event_type=EventType.FIXITY.value)
    assert (event.outcome, event.period) == ("fail", "2026-01-01")
    assert path.read_bytes() == b"rewritten"


def test_fixity_reads_masters_and_copies_once_in_a_period(stand: Stand) -> None:
    """A second run of the period reads nothing and adds no event; a deleted copy is found by both its checks."""
    stand.made.at(ARRIVED + timedelta(hours=1))
    stand.made.add("box/a.tif", seed=1)
    stand.window()
    stand.made.at(LATE)
    assert stand.job("fixity_period", PERIOD).success
    events = list(stand.made.project.ledger.events(event_type=EventType.FIXITY.value))
    assert len(events) == 2
    assert {event.outcome for event in events} == {"success"}
    assert stand.job("fixity_period", PERIOD).success
    run = next(run for run in stand.made.project.ledger.runs(limit=1000) if run.asset == FIXITY)
    assert run.summary is not None
    assert (run.summary["processed"], run.summary["skipped"]) == (0, 2)
    assert len(list(stand.made.project.ledger.events(event_type=EventType.FIXITY.value))) == 2


def test_exports_tell_of_a_period_of_fixity_when_it_is_over(stand: Stand) -> None:
    """The schedule asks for every window once a period; the documents then hold the checks, and nothing else is made again."""
    stand.made.at(ARRIVED + timedelta(hours=1))
    stand.made.add("box/a.tif", seed=1)
    stand.made.add("later/b.tif", seed=2, arrived=ARRIVED + timedelta(days=1))
    stand.window()
    stand.made.at(LATE)
    repository = stand.definitions.get_repository_def()
    schedule = repository.get_schedule_def("fixity_exports")
    assert schedule.cron_schedule == "0 4 3 * *"

    def asked() -> list[dg.RunRequest]:
        moment = datetime(2026, 2, 3, 4, tzinfo=UTC)
        context = dg.build_schedule_context(instance=stand.instance, scheduled_execution_time=moment, repository_def=repository)
        return list(schedule.evaluate_tick(context).run_requests or ())

    assert asked() == []
    assert stand.job("fixity_period", PERIOD).success
    before = stand.made.outputs()
    (request,) = asked()
    assert (request.partition_key, request.asset_selection) == (WINDOW, [dg.AssetKey([PREMIS])])
    job = stand.definitions.resolve_job_def(request.job_name or "")
    result = job.execute_in_process(
        instance=stand.instance, partition_key=request.partition_key, asset_selection=request.asset_selection
    )
    assert result.success
    changed = {name for name, digest in stand.made.outputs().items() if before.get(name) != digest}
    document, table = sorted(changed, key=lambda name: not name.endswith(".xml"))
    assert table.endswith("events.parquet")
    text = (stand.made.project.config.store_dir / document).read_text()
    assert text.count("fixity check") == 2
    assert etree.XMLSchema(etree.parse(SCHEMA)).validate(etree.fromstring(text.encode()))


def test_a_lost_copy_is_made_again_byte_by_byte(stand: Stand) -> None:
    """The check of a run finds it missing, the sensor asks for its window, and the same bytes come back."""
    stand.made.add("box/a.tif", seed=1)
    stand.window()
    (row,) = stand.rows()
    outputs = stand.made.outputs()
    stand.made.project.store.remove(row.output_uri)
    stand.definitions.resolve_job_def("standing_checks").execute_in_process(instance=stand.instance, raise_on_error=False)
    watched = parts_of(stand.made.project).watched
    decided = tick(stand.instance, stand.made.project, watched.units, cursor=None)
    assert [request.partition_key for request in decided.run_requests or ()] == [WINDOW]
    assert stand.job("window_copies").success
    assert stand.made.outputs() == outputs
    assert len(stand.made.event_ids()) == 4


def test_other_settings_make_new_copies_and_keep_the_old_events(stand: Stand) -> None:
    """Lossy copies beside lossless ones: two migrations are on record, and the export names the current copy."""
    stand.made.add("box/a.tif", seed=1)
    stand.window()
    stand.made.configure(extra='[derivative]\ncompression = "ratio"\nratio = 4.0\n')
    assert all(result.success for result in stand.window())
    kinds = [event.event_type for event in stand.made.project.ledger.events()]
    assert kinds.count(EventType.MIGRATION.value) == 2
    assert len(kinds) == 5
    current = next(row.output_uri for row in stand.rows() if row.state is UnitState.COMPLETE)
    (document,) = stand.made.project.store.path(f"{PREMIS}/{WINDOW}").glob("*.xml")
    assert current in document.read_text()
