"""Lists that come with batches: what they give is checked, whatever they are called, and one list's fault is one batch's."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.digitization.batch_manifest import _bagit, _csv
from assets.digitization.capturing import list_masters
from assets.digitization.masters import Master, MasterVerdict
from resources.errors import ErrorKind, UnitRejected
from tests.support.master_projects import ARRIVED, MasterProject, bagit_lines, batch_manifest_in

V = MasterVerdict
WRONG = "0" * 64
Making = Callable[[Path], object]


@pytest.fixture
def made(tmp_path: Path) -> MasterProject:
    """A project with one sound batch, and one whose list is the test's."""
    project = MasterProject(tmp_path / "project")
    project.add("sound/a.tif", seed=9)
    project.add("box/data/a.tif")
    return project


def give(made: MasterProject, name: str, text: str) -> None:
    """Put a list into the batch `box`."""
    path = made.masters / "box" / name
    path.write_text(text, newline="")
    made.arrive(path)


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D")


def look(made: MasterProject) -> dict[str, Master]:
    """The masters that are listed, by uri; the sound batch is taken whatever the other one's list is."""
    found = {master.uri: master for master in list_masters(made.project, now=ARRIVED + timedelta(hours=1)).masters}
    assert found.pop("sound/a.tif").verdict is V.CAPTURED
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Manifest-SHA256.txt", f"{WRONG}  data/a.tif\n"),
        ("manifest-sha256.TXT", f"{WRONG}\tdata/a.tif\r"),
        ("MANIFEST.CSV", f"path,sha256\ndata/a.tif,{WRONG}\n"),
        ("Manifest.csv", f"path;sha256\r\ndata\\a.tif;{WRONG}\r\n"),
    ],
)
def test_a_list_is_checked_in_any_letter_case(made: MasterProject, name: str, text: str) -> None:
    """A damaged file is not taken in because its list came from a system that writes names otherwise."""
    give(made, name, text)
    assert look(made)["box/data/a.tif"].verdict is V.DAMAGED_IN_TRANSFER


@pytest.mark.parametrize(
    "make",
    [
        lambda box: (box / "manifest-sha512.txt").write_text(f"{'0' * 128}  data/a.tif\n"),
        lambda box: (box / "manifest-md5.txt").write_text(f"{'0' * 32}  data/a.tif\n"),
        lambda box: (box / "manifest.csv").mkdir() or (box / "manifest.csv/x.tif").write_bytes(b""),
        lambda box: (box / "manifest.csv").symlink_to("manifest.csv"),
        lambda box: os.mkfifo(box / "manifest-sha256.txt"),
        lambda box: [(box / name).write_text("path\ndata/a.tif\n") for name in ("manifest.csv", "Manifest.csv")],
    ],
    ids=["sha512", "md5", "folder", "loop", "pipe", "twice"],
)
def test_a_list_that_cannot_be_used_keeps_its_batch_waiting(made: MasterProject, make: Making) -> None:
    """Passed over, it would let in what it says is damaged."""
    make(made.masters / "box")
    for path in (made.masters / "box").glob("*anifest*"):
        os.utime(path, (ARRIVED.timestamp(), ARRIVED.timestamp()), follow_symlinks=False)
    found = look(made)["box/data/a.tif"]
    assert found.verdict is V.WAITING
    assert "anifest" in found.reason


def test_another_digest_beside_a_sha256_list_is_no_fault(made: MasterProject) -> None:
    """Bags may carry several lists; one that can be checked is enough."""
    give(made, "manifest-md5.txt", f"{'0' * 32}  data/a.tif\n")
    give(made, "manifest-sha256.txt", bagit_lines({"data/a.tif": made.masters / "box/data/a.tif"}))
    assert look(made)["box/data/a.tif"].verdict is V.CAPTURED


def test_a_bag_may_list_more_than_masters(made: MasterProject) -> None:
    """Metadata, thumbnails and hidden files that lie there are not waited for; those that do not are."""
    listed = {"data/a.tif": made.masters / "box/data/a.tif"}
    for name in ("data/mets.xml", "data/Thumbs.db", "data/.hidden"):
        listed[name] = made.add(f"box/{name}", content=b"x")
    give(made, "manifest-sha256.txt", bagit_lines(listed))
    assert look(made)["box/data/a.tif"].verdict is V.CAPTURED


def test_a_bag_waits_for_what_is_no_master_too(made: MasterProject) -> None:
    """Its notes are still on their way."""
    master = made.masters / "box/data/a.tif"
    give(made, "manifest-sha256.txt", bagit_lines({"data/a.tif": master, "data/mets.xml": master}))
    found = look(made)["box/data/a.tif"]
    assert found.verdict is V.WAITING
    assert "data/mets.xml" in found.reason


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_date_beyond_the_calendar_keeps_one_batch_waiting(made: MasterProject, date: str) -> None:
    """It is a date in its own zone and none in UTC, and stops no other batch."""
    give(made, "manifest.csv", f"path,date\ndata/a.tif,{date}\n")
    found = look(made)["box/data/a.tif"]
    assert found.verdict is V.WAITING
    assert "date" in found.reason


def test_a_list_that_goes_while_it_is_read_stops_no_other_batch(made: MasterProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share may answer with an error for one file."""
    give(made, "manifest.csv", "path\ndata/a.tif\n")
    opened = Path.open

    def gone(path: Path, *arguments: str) -> IO[Any]:
        if path.name == "manifest.csv":
            raise FileNotFoundError(2, "No such file or directory")
        return opened(path, *arguments)

    monkeypatch.setattr(Path, "open", gone)
    found = look(made)["box/data/a.tif"]
    assert found.verdict is V.WAITING
    assert "cannot be read now" in found.reason


@pytest.mark.parametrize(
    "name", ["a\x85b.tif", "a\u2028b.tif", "a\x0cb.tif", "a\\b.tif", "a  b.tif", "100%.tif", "a\nb.tif", "%0A.tif"]
)
def test_any_name_of_a_bag_is_found_and_checked(made: MasterProject, name: str) -> None:
    """Names may hold backslashes, escapes, and what Python takes for the end of a line."""
    path = made.add(f"box/data/{name}", seed=3)
    listed = {f"data/{_escaped(name)}": path, "data/a.tif": made.masters / "box/data/a.tif"}
    give(made, "manifest-sha256.txt", bagit_lines(listed))
    found = look(made)
    assert {master.verdict for master in found.values()} == {V.CAPTURED}
    assert all(master.expected_sha256 == master.sha256 for master in found.values())


def test_an_absurd_line_makes_no_absurd_reason(tmp_path: Path) -> None:
    """Reasons go into ledgers, pages and alerts."""
    (tmp_path / "manifest-sha256.txt").write_text(f"{WRONG}  ../{'x' * 1_000_000}\n")
    with pytest.raises(UnitRejected) as refused:
        batch_manifest_in(tmp_path)
    assert len(str(refused.value)) < 1000


@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=200), is_bag=st.booleans())
def test_whatever_a_list_holds_it_is_read_or_refused(text: str, is_bag: bool) -> None:
    """Nothing else is raised, and no path leaves the batch's folder."""
    try:
        found = _bagit(text, text) if is_bag else _csv(f"path,sha256,date\n{text}")
    except UnitRejected as refused:
        assert refused.kind is ErrorKind.CORRUPT_INPUT  # noqa: PT017 - either end is allowed
        return
    for path in found.digests:
        assert path
        assert not path.startswith("/")
        assert ".." not in path.split("/")


@given(
    name=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00/"), min_size=1, max_size=40).filter(
        lambda name: name.strip(" \t") == name and name not in (".", "..")
    )
)
def test_every_name_survives_a_bags_line(name: str) -> None:
    """Written as the standard says, with line breaks and percent signs escaped, it comes back."""
    assert list(_bagit(f"{WRONG}  data/{_escaped(name)}\n", "").digests) == [f"data/{name}"]
