"""Masters and reports in an object store, over HTTP: listed, captured, copied, checked and recorded as from a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assets.digitization.capturing import list_masters
from assets.digitization.fixity import open_mismatches
from assets.digitization.identification import DEFAULT_LIMITS, identify
from assets.digitization.masters import MasterVerdict
from assets.sources.objects import ObjectSource
from assets.sources.source import Unpinned
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError, Verdict
from resources.verdicts import classify
from tests.support.master_projects import WINDOW, MasterProject
from tests.support.masters import identified, picture, write_master, write_pages
from tests.support.object_store import ObjectStore, running_store
from tests.support.report_projects import PERIOD, ReportProject, report_bytes

PREFIX = "s3://masters/incoming"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """One server for all tests; each makes buckets of its own."""
    with running_store(tmp_path_factory.mktemp("store") / "log") as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The server, known to this process too."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def put(client: Any, bucket: str, **objects: bytes) -> None:
    for key, content in objects.items():
        client.put_object(Bucket=bucket, Key=key, Body=content)


def test_everything_below_a_prefix_is_listed(store: ObjectStore) -> None:
    """Odd keys and hidden ones; folder markers and what lies beside the prefix are no objects of it."""
    client = store.bucket("listed")
    names = {f"in/box/{number:04d}.tif": b"x" for number in range(30)}
    odd = {"in/a b/ä%?#+.tif": b"xy", "in/.hidden/n.tif": b"", "in//twice.tif": b"x", "in/folder/": b"", "inside.tif": b"x"}
    put(client, "listed", **names, **odd)
    listing = ObjectSource("s3://listed/in").listing()
    assert len(listing.entries) == 32
    assert [stranger.uri for stranger in listing.strangers] == ["/twice.tif"]
    assert listing.entries["a b/ä%?#+.tif"].size_bytes == 2
    source = ObjectSource("s3://listed/in/")
    for entry in (listing.entries["a b/ä%?#+.tif"], listing.entries["box/0007.tif"]):
        assert source.digest_entry(entry) == hashlib.sha256(b"xy"[: entry.size_bytes]).hexdigest()
        assert source.is_still(entry)


def test_an_object_that_is_replaced_or_gone_is_told_from_what_was_listed(store: ObjectStore, tmp_path: Path) -> None:
    """By its version, not by its size or the second it was written in; and nothing is left of a copy that was made of it."""
    client = store.bucket("moving")
    put(client, "moving", **{"in/a.tif": b"old", "in/b.tif": b"gone"})
    source = ObjectSource("s3://moving/in")
    entries = source.listing().entries
    put(client, "moving", **{"in/a.tif": b"new"})
    client.delete_object(Bucket="moving", Key="in/b.tif")
    assert not source.is_still(entries["a.tif"])
    for name in entries:
        found = source.digest_entry(entries[name])
        assert isinstance(found, Unpinned)
        assert (found.kind, found.is_transient) == (ErrorKind.INPUT_CHANGED, True)
    scratch = tmp_path / "scratch"
    with source.held("a.tif", scratch) as held:
        assert held.path.read_bytes() == b"new"
        assert held.sha256 == hashlib.sha256(b"new").hexdigest() == source.digest("a.tif")
        held.require_still()
        scratch.write_bytes(b"other")
        with pytest.raises(TransientError):
            held.require_still()
    assert not scratch.exists()
    with pytest.raises(FileNotFoundError), source.held("b.tif", scratch):
        pass
    assert not scratch.exists()


def test_an_object_that_is_replaced_while_it_is_read_is_read_again_later(store: ObjectStore) -> None:
    """A large one comes in several requests: what comes of two versions is never taken for one."""
    client = store.bucket("torn")
    put(client, "torn", **{"in/a.tif": b"a" * 20_000_000})
    with ObjectSource("s3://torn/in").open("a.tif") as stream:
        assert stream.read(1_000_000) == b"a" * 1_000_000
        put(client, "torn", **{"in/a.tif": b"b" * 20_000_000})
        with pytest.raises(OSError, match="in/a") as torn:
            stream.read()
    assert classify(torn.value).verdict is Verdict.RETRY


def test_a_master_is_identified_without_taking_it_whole(store: ObjectStore, tmp_path: Path) -> None:
    """Its directories lie anywhere in it; the facts are those of the file."""
    client = store.bucket("facts")
    path = write_master(tmp_path / "a.tif", picture(1500, 2000))
    put(client, "facts", **{"in/a.tif": path.read_bytes()})
    with ObjectSource("s3://facts/in").open("a.tif") as stream:
        assert identify(stream, DEFAULT_LIMITS) == identified(path)


def test_a_store_that_cannot_be_listed_stops_the_run(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such bucket, an empty prefix where a check looks for lost objects, no server: a person must act, nothing is lost."""
    store.bucket("empty")
    with pytest.raises(EnvironmentUnfit) as missing:
        ObjectSource("s3://no-such-bucket/in").listing()
    assert missing.value.kind is ErrorKind.SOURCE_MISSING
    with pytest.raises(EnvironmentUnfit):
        ObjectSource("s3://empty/in").require()
    assert ObjectSource("s3://empty/in").listing().is_empty


def remote_project(folder: Path, prefix: str) -> MasterProject:
    """A project whose masters lie below a prefix, in bags that say when they were packed."""
    made = MasterProject(folder)
    made.configure(('uri = "masters"', f'uri = "{prefix}"\ndone_marker = "batch.done"\nwindow_by = "manifest"'))
    return made


def test_masters_of_an_object_store_are_digitized_as_those_of_a_folder(store: ObjectStore, tmp_path: Path) -> None:
    """The same copies to the byte, one quarantined for its transfer, nothing twice; what is changed afterwards is told."""
    client = store.bucket("masters")
    local = MasterProject(tmp_path / "local")
    masters = {name: local.add(f"box/{name}", seed=seed) for seed, name in enumerate(("a.tif", "b c.tif", "deep/d.tif"))}
    masters["pages.tif"] = write_pages(local.masters / "box/pages.tif", [picture(20, 30, seed=7), picture(20, 30, seed=8)])
    local.arrive(masters["pages.tif"])
    assert local.copies().summary.processed == 4

    made = remote_project(tmp_path / "remote", PREFIX)
    objects = {f"incoming/box/{name}": path.read_bytes() for name, path in masters.items()}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in masters.items()}
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()] + [f"{'0' * 64}  damaged.tif\n"]
    put(client, "masters", **objects, **{"incoming/box/damaged.tif": masters["a.tif"].read_bytes()})
    put(client, "masters", **{"incoming/box/manifest-sha256.txt": "".join(lines).encode()})
    put(client, "masters", **{"incoming/box/bag-info.txt": f"Bagging-Date: {WINDOW}".encode()})
    waiting = store.tilewright(made.path, "plan", "--json")
    assert "batch.done" in waiting.stdout + waiting.stderr
    put(client, "masters", **{"incoming/box/batch.done": b""})
    first = store.tilewright(made.path, "run")
    assert first.returncode == 3, first.stderr
    copies = {name: digest for name, digest in made.outputs().items() if name.endswith(".jp2")}
    expected = {name: digest for name, digest in local.outputs().items() if name.endswith(".jp2")}
    assert sorted(copies.values()) == sorted(expected.values())
    (letter,) = made.project.ledger.dead_letters()
    assert letter.kind == ErrorKind.DAMAGED_IN_TRANSFER
    assert "damaged.tif" in letter.reason
    outputs, events = made.outputs(), made.event_ids()
    assert len(events) == len(set(events)) == 4 * 4
    assert {report.summary.processed for report in made.everything()} == {0}
    assert (made.outputs(), made.event_ids()) == (outputs, events)
    assert not list(made.project.config.store_dir.rglob("*scratch*"))

    put(client, "masters", **{"incoming/box/a.tif": masters["b c.tif"].read_bytes()})
    client.delete_object(Bucket="masters", Key="incoming/box/deep/d.tif")
    listing = list_masters(made.project, now=made.project.ledger.clock())
    assert [master.uri for master in listing.with_verdict(MasterVerdict.CHANGED)] == ["box/a.tif"]
    made.at(datetime(2099, 1, 30, 23, tzinfo=UTC))
    assert made.fixity("2099-01").summary.failed == 0
    found = {one.object: one.found for one in open_mismatches(made.project, now=made.project.ledger.clock())}
    assert found == {"box/a.tif": digests["b c.tif"], "box/deep/d.tif": "nothing: it is not there"}


def test_reports_of_an_object_store_are_listed_taken_and_corrected(store: ObjectStore, tmp_path: Path) -> None:
    """By a pattern of their keys; a corrected one is known by its ETag and takes the place of the old."""
    client = store.bucket("reports")
    made = ReportProject(tmp_path / "project")
    config = made.folder / "tilewright.toml"
    made.configure(('tables = "lists/{window}.csv"', 'listing = "s3://reports/signed"\npattern = "{site}_{period}.pdf"'))
    sites = [f"TWR-{number}" for number in range(5)]
    put(client, "reports", **{f"signed/{site}/{site}_{PERIOD}.pdf": report_bytes(site) for site in sites})
    put(client, "reports", **{"signed/notes.txt": b"none", f"signed/cut_{PERIOD}.pdf": b"%PDF-1.7 and no more"})
    first = store.tilewright(config, "run")
    assert len(made.records()) == 5, first.stdout + first.stderr
    assert [letter.kind for letter in made.project.ledger.dead_letters()] == [ErrorKind.UNREADABLE]
    before = made.records()
    assert made.run().summary.processed == 0
    assert made.records() == before
    put(client, "reports", **{f"signed/TWR-3/TWR-3_{PERIOD}.pdf": report_bytes("TWR-3", condition="poor")})
    store.tilewright(config, "run")
    changed = [(old, new) for old, new in zip(before, made.records(), strict=True) if old != new]
    assert [(old.site, old.fields["condition"], new.fields["condition"]) for old, new in changed] == [("TWR-3", "good", "poor")]
