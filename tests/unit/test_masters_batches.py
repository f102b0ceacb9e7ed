"""Batches: what is taken in, what waits, what is damaged in transfer; and captures that stand whatever becomes of the file."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assets.digitization.batch_manifest import is_manifest_part
from assets.digitization.capturing import list_masters
from assets.digitization.master_survey import survey_of
from assets.digitization.masters import Master, MasterVerdict
from resources.errors import EnvironmentUnfit, ErrorKind, UnitRejected
from tests.support.master_projects import ARRIVED, MasterProject, bagit_lines, batch_manifest_in

V = MasterVerdict
NOW = ARRIVED + timedelta(hours=1)


def look(made: MasterProject, *, now: datetime = NOW) -> dict[str, Master]:
    """The masters that are listed, by uri."""
    return {master.uri: master for master in list_masters(made.project, now=now).masters}


@pytest.fixture
def made(tmp_path: Path) -> MasterProject:
    """A project without masters."""
    return MasterProject(tmp_path / "project")


def test_a_bag_gives_digests_and_its_date(tmp_path: Path) -> None:
    """Escapes in paths are undone, and the date is the bag's."""
    (tmp_path / "manifest-sha256.txt").write_text(f"{'A' * 64}  data/a%0Ab%25.tif\n{'b' * 64} *./data/b.tif\n\n")
    (tmp_path / "bag-info.txt").write_text("Source-Organization: Lab\nBagging-Date: 2024-06-02\n")
    found = batch_manifest_in(tmp_path)
    assert found is not None
    assert found.digests == {"data/a\nb%.tif": "a" * 64, "data/b.tif": "b" * 64}
    assert found.moment == datetime(2024, 6, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "path,sha256,date\na.tif,{0},2024-06-02\nb/c.tif,,\n",
        "path,checksum,note,date\na.tif,{0},first,2024-06-02\nb/c.tif,,%s,\n" % ("d" * 40),
        "\ufeffFilename;SHA256;Date\r\na.tif;{0};2024-06-02T00:00:00Z\r\n.\\b\\c.tif;;\r\n",
    ],
)
def test_a_csv_gives_digests_where_it_has_them(tmp_path: Path, text: str) -> None:
    """Comma or semicolon, any letter case, a byte order mark, and Windows's slashes."""
    (tmp_path / "manifest.csv").write_text(text.format("c" * 64), newline="")
    found = batch_manifest_in(tmp_path)
    assert found is not None
    assert found.digests == {"a.tif": "c" * 64, "b/c.tif": None}
    assert found.moment == datetime(2024, 6, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest-sha256.txt", b"abc  data/a.tif\n"),
        ("manifest-sha256.txt", b"%b  ../a.tif\n" % (b"a" * 64)),
        ("manifest-sha256.txt", b"%b  a.tif\n%b  a.tif\n" % (b"a" * 64, b"b" * 64)),
        ("manifest.csv", b"sha256\nabc\n"),
        ("manifest.csv", b"path,checksum\na.tif,abc\n"),
        ("manifest.csv", b"path,md5\na.tif,%b\n" % (b"a" * 32)),
        ("manifest.csv", b"path,mystery\nb.tif,\na.tif,%b\n" % (b"A" * 64)),
        ("manifest.csv", b"path,date\na.tif,yesterday\n"),
        ("manifest.csv", b"path\n\xff\xfe.tif\n"),
        ("manifest.csv", b""),
    ],
)
def test_a_list_that_cannot_be_understood_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """Half a list would let half a batch pass."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnitRejected) as refused:
        batch_manifest_in(tmp_path)
    assert refused.value.kind is ErrorKind.CORRUPT_INPUT


def test_bookkeeping_of_a_bag_is_no_master() -> None:
    """Neither are lists; files that only look like them elsewhere are."""
    assert all(is_manifest_part(name) for name in ("bagit.txt", "tagmanifest-sha512.txt", "manifest.csv", "bag-info.txt"))
    assert not any(is_manifest_part(name) for name in ("data/manifest.csv", "manifest.tif", "a.txt"))


def test_a_master_is_captured_once_and_keeps_what_was_captured(made: MasterProject) -> None:
    """Rewritten in place, it is told as changed, with both digests; its capture stands."""
    path = made.add("box/a.tif")
    first = look(made)["box/a.tif"]
    assert (first.verdict, first.window, first.captured_at) == (V.CAPTURED, "2026-01-01", NOW)
    path.write_bytes(path.read_bytes() + b"a note")
    later = look(made, now=NOW + timedelta(days=3))["box/a.tif"]
    assert (later.verdict, later.sha256, later.captured_at) == (V.CHANGED, first.sha256, NOW)
    assert later.found_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert str(later.found_sha256) in later.reason
    assert str(later.sha256) in later.reason


def test_a_captured_master_that_is_gone_is_told(made: MasterProject) -> None:
    """By the plan and the check on the source, also when its batch's folder went with it; its capture stands."""
    gone = [made.add("box/a.tif"), made.add("other/b.tif", seed=2)]
    made.add("box/c.tif", seed=3)
    first = look(made)
    for path in gone:
        path.unlink()
    gone[1].parent.rmdir()
    found = look(made)
    assert {uri: master.verdict for uri, master in found.items()} == {
        "box/a.tif": V.MISSING, "box/c.tif": V.CAPTURED, "other/b.tif": V.MISSING
    }  # fmt: skip
    assert found["box/a.tif"].sha256 == first["box/a.tif"].sha256
    told = survey_of(list_masters(made.project, now=NOW)).left_out
    assert [(item.name, item.verdict) for item in told] == [("box/a.tif", "MISSING"), ("other/b.tif", "MISSING")]
    made.add("box/a.tif")
    made.add("other/b.tif", seed=2)
    assert {master.verdict for master in look(made).values()} == {V.CAPTURED}


def test_masters_may_be_kept_elsewhere_where_fixity_reads_copies_alone(made: MasterProject) -> None:
    """Else a source of which nothing is left stops the run, as a disk that is not mounted must."""
    path = made.add("box/a.tif")
    look(made)
    path.unlink()
    with pytest.raises(EnvironmentUnfit) as stopped:
        look(made)
    assert stopped.value.kind is ErrorKind.SOURCE_MISSING
    made.configure(extra='[fixity]\nscope = "copies"\n')
    assert look(made) == {}


def test_a_folder_that_cannot_be_listed_is_no_lot_of_lost_masters(made: MasterProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that answers with an error stops the run; its masters are not gone."""
    made.add("box/a.tif")
    made.add("other/b.tif", seed=2)
    look(made)
    scan = os.scandir

    def refusing(path: Path) -> object:
        if Path(path).name == "box":
            raise OSError(5, "Input/output error")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(EnvironmentUnfit) as stopped:
        look(made)
    assert stopped.value.kind is ErrorKind.SOURCE_MISSING
    assert "'box'" in stopped.value.message


def test_a_plan_tells_of_a_batch_that_settles(made: MasterProject) -> None:
    """The check on the source does not fail for it: it will be taken by itself."""
    made.configure(("settle_s = 0", "settle_s = 60"))
    made.add("box/a.tif", arrived=NOW - timedelta(seconds=30))
    made.at(NOW)
    (told,) = made.project.outlook([], window=None).left_out
    assert (told.name, told.verdict) == ("box/a.tif", "UNSETTLED")
    assert "settle_s" in told.reason
    assert made.project.survey(now=NOW).left_out == ()


def test_a_touched_master_is_read_again_and_found_well(made: MasterProject) -> None:
    """Another time alone is no other content."""
    path = made.add("box/a.tif")
    look(made)
    os.utime(path, (1, 1))
    assert look(made)["box/a.tif"].verdict is V.CAPTURED


def test_a_file_damaged_in_transfer_is_not_taken_in_until_it_comes_sound(made: MasterProject) -> None:
    """It is told with both digests; the sound file may come under the same name."""
    good, bad = made.add("box/data/good.tif", seed=1), made.add("box/data/bad.tif", seed=2)
    sound = bad.read_bytes()
    (made.masters / "box/manifest-sha256.txt").write_text(bagit_lines({"data/good.tif": good, "data/bad.tif": bad}))
    made.arrive(made.masters / "box/manifest-sha256.txt")
    made.add("box/data/bad.tif", content=sound[:-1] + b"\xff")
    found = look(made)
    assert found["box/data/good.tif"].verdict is V.CAPTURED
    damaged = found["box/data/bad.tif"]
    assert (damaged.verdict, damaged.kind, damaged.window) == (V.DAMAGED_IN_TRANSFER, ErrorKind.DAMAGED_IN_TRANSFER, "2026-01-01")
    assert hashlib.sha256(sound).hexdigest() in damaged.reason
    made.add("box/data/bad.tif", content=sound)
    assert look(made)["box/data/bad.tif"].verdict is V.CAPTURED


def test_a_batch_waits_for_every_file_that_its_manifest_names(made: MasterProject) -> None:
    """Half a batch is not taken, not even its sound half."""
    path = made.add("box/a.tif")
    (made.masters / "box/manifest.csv").write_text("path\na.tif\nb.tif\n")
    made.arrive(made.masters / "box/manifest.csv")
    waiting = look(made)["box/a.tif"]
    assert waiting.verdict is V.WAITING
    assert "b.tif" in waiting.reason
    made.add("box/b.tif", content=path.read_bytes())
    assert {master.verdict for master in look(made).values()} == {V.CAPTURED}


def test_a_batch_waits_for_its_marker_and_comes_into_the_markers_window(made: MasterProject) -> None:
    """The marker's time is the batch's arrival."""
    made.configure(("settle_s = 0", 'done_marker = "batch.done"'))
    made.add("box/a.tif")
    assert look(made)["box/a.tif"].verdict is V.WAITING
    made.add("box/batch.done", content=b"", arrived=ARRIVED + timedelta(days=2))
    assert look(made, now=NOW + timedelta(days=3))["box/a.tif"].window == "2026-01-03"


def test_a_batch_settles_before_it_is_taken(made: MasterProject) -> None:
    """One young file keeps the whole batch."""
    made.configure(("settle_s = 0", "settle_s = 60"))
    made.add("box/a.tif")
    made.add("box/b.tif", seed=2, arrived=NOW - timedelta(seconds=30))
    assert {master.verdict for master in look(made).values()} == {V.UNSETTLED}
    assert {master.verdict for master in look(made, now=NOW + timedelta(seconds=31)).values()} == {V.CAPTURED}


def test_files_that_come_later_join_the_window_of_their_batch(made: MasterProject) -> None:
    """A batch has one window: that of what was captured of it first."""
    made.add("box/a.tif")
    look(made)
    made.add("box/b.tif", seed=2, arrived=ARRIVED + timedelta(days=5))
    assert look(made, now=NOW + timedelta(days=6))["box/b.tif"].window == "2026-01-01"


def test_a_manifests_date_decides_where_it_is_to(made: MasterProject) -> None:
    """A batch without a date waits; one before the first window belongs to none, and neither vanishes."""
    made.configure(("settle_s = 0", 'settle_s = 0\nwindow_by = "manifest"'))
    for name, date in (("early", "2025-12-31"), ("right", "2026-01-02"), ("none", "")):
        made.add(f"{name}/a.tif")
        (made.masters / name / "manifest.csv").write_text(f"path,date\na.tif,{date}\n")
    found = look(made, now=NOW + timedelta(days=400))
    assert found["early/a.tif"].verdict is V.OUTSIDE_WINDOWS
    assert (found["right/a.tif"].verdict, found["right/a.tif"].window) == (V.CAPTURED, "2026-01-02")
    assert found["none/a.tif"].verdict is V.WAITING


def test_what_is_no_master_is_told(made: MasterProject) -> None:
    """A file beside the batches, an unmatched name, a pipe and a hidden file are strangers; ignored ones are not."""
    made.add("stray.tif")
    made.add("box/notes.txt", content=b"x")
    made.add("box/Thumbs.db", content=b"x")
    made.add("box/.hidden.tif", content=b"x")
    made.add("box/A.TIF")
    os.mkfifo(made.masters / "box/pipe.tif")
    listing = list_masters(made.project, now=NOW)
    assert [master.uri for master in listing.masters] == ["box/A.TIF"]
    assert {other.uri for other in listing.strangers} == {"stray.tif", "box/notes.txt", "box/.hidden.tif", "box/pipe.tif"}


@pytest.mark.parametrize("content", [b"", b"no picture", b"II*\0\xff\xff\xff\xff"])
def test_what_cannot_be_identified_is_not_taken_in(made: MasterProject, content: bytes) -> None:
    """It is refused with its kind, and a sound file may come under its name."""
    made.add("box/a.tif", content=content)
    refused = look(made)["box/a.tif"]
    assert (refused.verdict, refused.sha256) == (V.REFUSED, None)
    assert refused.kind is not None
    made.add("box/a.tif")
    assert look(made)["box/a.tif"].verdict is V.CAPTURED


def test_names_of_any_kind_are_taken(made: MasterProject) -> None:
    """Spaces, colons, percent signs, quotes and accents; bytes that are no UTF-8 are refused, not crashed on."""
    names = ["a b.tif", "a:1:b.tif", "100%.tif", 'it\'s "q".tif', "\u00e9.tif", "#?&.tif"]
    for number, name in enumerate(names):
        made.add(f"b x/{name}", seed=number)
    made.add(os.fsdecode(b"b x/\xff.tif"))
    found = list(look(made).values())
    assert sorted(master.verdict for master in found) == [V.CAPTURED] * len(names) + [V.REFUSED]
    report = made.copies()
    assert (report.summary.processed, report.summary.quarantined) == (len(names), 1)


def test_a_source_that_is_not_there_stops(made: MasterProject) -> None:
    """An unmounted disk is no empty source."""
    made.masters.rmdir()
    with pytest.raises(EnvironmentUnfit) as unfit:
        look(made)
    assert unfit.value.kind is ErrorKind.SOURCE_MISSING
