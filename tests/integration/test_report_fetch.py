"""Reports over a real HTTP server that fails in every way it can, and from local files: each way gets its verdict."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

from assets.fetch import uris
from assets.fetch.fetching import FetchLimits, HostSlots, fetch, list_index, redacted, version_token, version_tokens
from assets.fetch.verdicts import of_status, retry_after_s
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError, UnitRejected, Verdict
from resources.verdicts import Failure, classify
from tests.support import faulty_http as answers
from tests.support.faulty_http import FaultyHttp, faulty_http

CONTENT = b"%PDF-1.7 a report"
LIMITS = FetchLimits(max_bytes=1_000_000, connect_s=5, read_s=0.5, total_s=10)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyHttp]:
    """A server on this machine, reached without a proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with faulty_http() as running:
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where content is to go."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder / "report"


def failed(uri: str, target: Path, *, limits: FetchLimits = LIMITS) -> Failure:
    """The verdict on a fetch that fails, which must leave no part behind."""
    with pytest.raises((TransientError, UnitRejected, EnvironmentUnfit)) as raised:
        fetch(uri, target, limits=limits)
    assert not target.exists()
    return classify(pickle.loads(pickle.dumps(raised.value)))


def verdict(failure: Failure) -> tuple[Verdict, ErrorKind]:
    """What counts of a failure."""
    return failure.verdict, failure.kind


# --- content that comes ------------------------------------------------------------


def test_content_comes_with_its_digest_and_token_by_one_request(server: FaultyHttp, target: Path) -> None:
    """What arrives is what was sent, digested, with the ETag that came with it, and no head is asked for first."""
    uri = server.route("/r.pdf", answers.ok(CONTENT, ETag='"v1"'))
    got = fetch(uri, target, limits=LIMITS)
    assert target.read_bytes() == CONTENT
    assert (got.digest, got.size_bytes) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    assert (got.uri_final, got.token, got.content_type) == (uri, 'etag:"v1"', "application/pdf")
    assert [method for method, _, _ in server.requests] == ["GET"]


def test_redirects_are_followed_and_the_last_address_is_told(server: FaultyHttp, target: Path) -> None:
    """A relative redirect leads to the content, and the token is that of the content."""
    final = server.route("/r.pdf", answers.ok(CONTENT, ETag='"v1"'))
    uri = server.route("/old", answers.redirect("/r.pdf", 301))
    got = fetch(uri, target, limits=LIMITS)
    assert (got.uri_final, got.token, target.read_bytes()) == (final, 'etag:"v1"', CONTENT)
    assert version_token(uri, limits=LIMITS) == 'etag:"v1"'


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
def test_a_coding_that_nobody_asked_for_is_taken_off(server: FaultyHttp, target: Path, coding: str) -> None:
    """The digest is that of the report, however it was packed for the way."""
    got = fetch(server.route("/r.pdf", answers.gzipped(CONTENT, coding=coding)), target, limits=LIMITS)
    assert (target.read_bytes(), got.digest) == (CONTENT, hashlib.sha256(CONTENT).hexdigest())
    assert server.requests[0][2]["Accept-Encoding"] == "identity"


def test_a_signed_address_is_sent_as_it_is_written(server: FaultyHttp, target: Path) -> None:
    """Quoting a signature anew would break it."""
    server.route("/a%2Fb.pdf", answers.ok(CONTENT))
    fetch(server.url("/a%2Fb.pdf?X-Amz-Signature=a%2Fb%2Bc&x=%7E"), target, limits=LIMITS)
    assert server.requests[0][1] == "/a%2Fb.pdf?X-Amz-Signature=a%2Fb%2Bc&x=%7E"


def test_a_user_name_in_the_address_is_sent_and_never_shown(server: FaultyHttp, target: Path) -> None:
    """Credentials go to the server and into no result."""
    uri = server.route("/r.pdf", answers.ok(CONTENT)).replace("//", "//inspector:hunter2@")
    got = fetch(uri, target, limits=LIMITS)
    assert server.requests[0][2]["Authorization"].startswith("Basic ")
    assert got.uri_final == server.url("/r.pdf")


def test_after_503_a_later_call_gets_the_content(server: FaultyHttp, target: Path) -> None:
    """Nothing is remembered against a server that has recovered; each call asks once, since it is the engine that tries again."""
    uri = server.route("/r.pdf", answers.unavailable(2, answers.ok(CONTENT)))
    pauses = [failed(uri, target).retry_after_s for _ in range(2)]
    assert fetch(uri, target, limits=LIMITS).size_bytes == len(CONTENT)
    assert (pauses, server.count("GET")) == ([7.0, 7.0], 3)


# --- failures and their verdicts ------------------------------------------------------------

TRANSIENT = {
    "nothing is answered": (answers.silent(), ErrorKind.TIMEOUT),
    "it stops after the head": (answers.stalls(), ErrorKind.TIMEOUT),
    "reset before the head": (answers.reset(), ErrorKind.SOURCE_UNAVAILABLE),
    "reset in the body": (answers.reset(after=b"%PDF-1.7"), ErrorKind.SOURCE_UNAVAILABLE),
    "body shorter than declared": (answers.short(), ErrorKind.SOURCE_UNAVAILABLE),
    "chunks that end too early": (answers.chunked_short(), ErrorKind.SOURCE_UNAVAILABLE),
    "packed body cut short": (answers.gzipped(CONTENT * 50, cut=9), ErrorKind.SOURCE_UNAVAILABLE),
    "not gzip at all": (answers.ok(CONTENT, Content_Encoding="gzip"), ErrorKind.SOURCE_UNAVAILABLE),
    "no HTTP": (answers.raw(b"SSH-2.0-server\r\n"), ErrorKind.SOURCE_UNAVAILABLE),
    "202": (answers.status(202), ErrorKind.SOURCE_UNAVAILABLE),
    "408": (answers.status(408), ErrorKind.TIMEOUT),
    "425": (answers.status(425), ErrorKind.SOURCE_UNAVAILABLE),
    "429": (answers.status(429), ErrorKind.SOURCE_UNAVAILABLE),
    "500": (answers.status(500), ErrorKind.SOURCE_UNAVAILABLE),
    "502": (answers.status(502), ErrorKind.SOURCE_UNAVAILABLE),
    "503": (answers.status(503), ErrorKind.SOURCE_UNAVAILABLE),
    "504": (answers.status(504), ErrorKind.TIMEOUT),
}
REJECTED = {
    "404": (answers.status(404), ErrorKind.NOT_FOUND),
    "410": (answers.status(410), ErrorKind.NOT_FOUND),
    "204": (answers.raw(b"HTTP/1.1 204 No Content\r\n\r\n"), ErrorKind.UNREADABLE),
    "400": (answers.status(400), ErrorKind.UNREADABLE),
    "405": (answers.status(405), ErrorKind.UNREADABLE),
    "418": (answers.status(418), ErrorKind.UNREADABLE),
    "206": (answers.status(206), ErrorKind.UNREADABLE),
    "declares too much": (answers.ok(b"x" * 1_000_001), ErrorKind.TOO_LARGE),
    "never ends": (answers.endless(), ErrorKind.TOO_LARGE),
    "unpacks to too much": (answers.gzipped(b"0" * 20_000_000), ErrorKind.TOO_LARGE),
    "unknown coding": (answers.ok(CONTENT, Content_Encoding="br"), ErrorKind.UNREADABLE),
    "redirects to a file": (answers.redirect("file:///etc/hostname"), ErrorKind.UNREADABLE),
    "redirects to ftp": (answers.redirect("ftp://127.0.0.1/x"), ErrorKind.UNREADABLE),
    "redirects to nowhere": (answers.status(302), ErrorKind.UNREADABLE),
    "redirects to no address": (answers.redirect("http://[::1/x"), ErrorKind.UNREADABLE),
    "redirects in a circle": (answers.redirect("/report"), ErrorKind.UNREADABLE),
}


@pytest.mark.parametrize("case", TRANSIENT)
def test_what_may_come_later_is_tried_again(server: FaultyHttp, target: Path, case: str) -> None:
    """Time-outs, resets, cut bodies and statuses of the moment get RETRY."""
    answer, kind = TRANSIENT[case]
    assert verdict(failed(server.route("/report", answer), target)) == (Verdict.RETRY, kind)


@pytest.mark.parametrize("case", REJECTED)
def test_what_will_not_come_is_set_aside(server: FaultyHttp, target: Path, case: str) -> None:
    """Absent, too large or leading astray gets QUARANTINE."""
    answer, kind = REJECTED[case]
    assert verdict(failed(server.route("/report", answer), target)) == (Verdict.QUARANTINE, kind)


@pytest.mark.parametrize("code", [401, 403, 407])
def test_refused_credentials_stop_the_run_and_name_the_host(server: FaultyHttp, target: Path, code: int) -> None:
    """No report is at fault for credentials; a person is told where to renew them."""
    failure = failed(server.route("/report", answers.status(code)), target)
    assert verdict(failure) == (Verdict.STOP, ErrorKind.CREDENTIALS_REFUSED)
    assert "127.0.0.1" in failure.message
    assert "renew" in failure.message


def test_a_drip_is_bounded_by_the_total_time(server: FaultyHttp, target: Path) -> None:
    """A byte now and then keeps every silence short; the whole is bounded all the same."""
    limits = FetchLimits(read_s=5, total_s=0.5)
    assert verdict(failed(server.route("/report", answers.drips()), target, limits=limits)) == (Verdict.RETRY, ErrorKind.TIMEOUT)


def test_time_runs_over_redirects_together(server: FaultyHttp, target: Path) -> None:
    """The total time is one for the whole chain: it ends where only the second answer is slow."""
    server.route("/slow", answers.silent())
    uri = server.route("/report", answers.redirect("/slow"))
    assert failed(uri, target, limits=FetchLimits(read_s=60, total_s=0.4)).kind == ErrorKind.TIMEOUT


def test_a_declared_size_is_refused_before_the_body(server: FaultyHttp, target: Path) -> None:
    """Nothing of a body is taken that says beforehand that it is too large."""
    limits = FetchLimits(max_bytes=10)
    failure = failed(server.route("/report", answers.stalls()), target, limits=limits)  # would time out if it were read
    assert verdict(failure) == (Verdict.QUARANTINE, ErrorKind.TOO_LARGE)
    assert "1,000,000" in failure.message


def test_as_many_bytes_as_allowed_are_taken(server: FaultyHttp, target: Path) -> None:
    """The limit itself is allowed, and one byte more is not."""
    uri = server.route("/report", answers.ok(CONTENT))
    assert fetch(uri, target, limits=FetchLimits(max_bytes=len(CONTENT))).size_bytes == len(CONTENT)
    assert failed(uri, target, limits=FetchLimits(max_bytes=len(CONTENT) - 1)).kind == ErrorKind.TOO_LARGE


def test_a_refused_connection_is_tried_again(target: Path) -> None:
    """Nobody listens on the port: RETRY."""
    with faulty_http() as gone:
        uri = gone.url("/report")
    assert verdict(failed(uri, target)) == (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE)


def test_an_unknown_name_is_tried_again(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no server knows may be known again: RETRY. The top domain is reserved for being unknown (RFC 6761)."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert failed("http://reports.invalid/r.pdf", target).verdict == Verdict.RETRY


def test_an_untrusted_certificate_stops_the_run(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for is not the report's fault, and nothing is fetched past it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with faulty_http(self_signed(tmp_path)) as server:
        failure = failed(server.route("/report", answers.ok(CONTENT)), target)
        assert verdict(failure) == (Verdict.STOP, ErrorKind.UNTRUSTED_HOST)
        assert server.requests == []


def test_an_answer_that_is_no_http_is_tried_again(tmp_path: Path, target: Path, server: FaultyHttp) -> None:
    """TLS spoken to a server without it: the handshake fails, which says nothing about the report."""
    uri = server.route("/report", answers.ok(CONTENT)).replace("http:", "https:")
    assert verdict(failed(uri, target)) == (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE)


@pytest.mark.parametrize(
    "uri", ["http://a..b/r", "http:///r", "http://[::1/r", "http://127.0.0.1:99999/r", "http://" + "a" * 70 + ".invalid/r"]
)
def test_what_is_no_address_is_set_aside(target: Path, uri: str) -> None:
    """A mistyped address gets QUARANTINE, not a crash of the run."""
    assert verdict(failed(uri, target)) == (Verdict.QUARANTINE, ErrorKind.UNREADABLE)


@pytest.mark.parametrize("uri", ["ftp://host/r.pdf", "github://x/y", "memory://r", "zip://a.zip", "reference://x", "s3x://b/k"])
def test_other_schemes_are_refused(target: Path, uri: str) -> None:
    """fsspec knows many schemes; only those that were thought of are taken."""
    assert verdict(failed(uri, target)) == (Verdict.QUARANTINE, ErrorKind.UNREADABLE)


def test_a_missing_package_stops_the_run_and_is_named(target: Path) -> None:
    """An object store whose client is not installed is no report's fault."""
    failure = failed("gs://bucket/r.pdf", target)
    assert verdict(failure) == (Verdict.STOP, ErrorKind.BROKEN_INSTALLATION)
    assert "gcsfs" in failure.message


def test_a_redirect_into_this_machine_from_outside_is_not_followed() -> None:
    """A server elsewhere cannot make this machine ask itself, or its cloud for credentials."""
    from assets.fetch.http import _next

    for inner in ("http://127.0.0.1/x", "http://169.254.169.254/latest", "http://localhost/x", "http://[::1]/x"):
        with pytest.raises(UnitRejected):
            _next("http://reports.example/r", inner)
    with pytest.raises(UnitRejected):
        _next("https://reports.example/r", "http://reports.example/r")
    assert _next("http://reports.example/a/r", "https://other.example/s") == "https://other.example/s"
    assert _next("https://u:p@reports.example/a/r", "s?x=1") == "https://u:p@reports.example/a/s?x=1"


# --- Retry-After ------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "9" * 400}, 86_400.0),
        ({"Retry-After": "Sun, 01 Mar 2026 12:01:00 GMT"}, 60.0),
        ({"Retry-After": "Sun, 01 Mar 2026 12:01:00 GMT", "Date": "Sun, 01 Mar 2026 12:00:50 GMT"}, 10.0),
        ({"Retry-After": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "Sun, 01 Mar 2099 11:00:00 GMT"}, 86_400.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "1.5e3"}, None),
        ({"Retry-After": "²"}, None),
        ({}, None),
    ],
)
def test_the_pause_that_a_source_asks_for(headers: dict[str, str], expected: float | None) -> None:
    """Seconds or a date, against the server's own clock where it tells it, bounded; nonsense asks for nothing."""
    assert retry_after_s(headers, limits=LIMITS, now=NOW) == expected


def test_429_with_a_date_carries_its_pause(server: FaultyHttp, target: Path) -> None:
    """A date on the way to the engine becomes seconds, and survives pickling."""
    failure = failed(server.route("/report", answers.status(429, Retry_After=answers.in_seconds(90))), target)
    assert failure.retry_after_s is not None
    assert 85 <= failure.retry_after_s <= 91


# --- version tokens ------------------------------------------------------------


def test_tokens_come_from_the_head_alone(server: FaultyHttp) -> None:
    """ETag, weak or strong; else Last-Modified with the length; else none: and no body is taken for any of them."""
    past = answers.in_seconds(-100)
    expected = {
        server.route("/strong", answers.ok(ETag='"1"', Last_Modified=past)): 'etag:"1"',
        server.route("/weak", answers.ok(ETag='W/"1"')): 'etag:W/"1"',
        server.route("/time", answers.ok(b"12345", Last_Modified=past)): f"modified:{past}:5",
        server.route("/just-now", answers.ok(Last_Modified=answers.in_seconds(60))): None,
        server.route("/neither", answers.ok()): None,
        server.route("/no-head", answers.no_head(answers.ok(ETag='"1"'))): None,
        server.route("/no-such-method", answers.no_head(answers.ok(ETag='"1"'), 501)): None,
    }
    assert dict(version_tokens(expected, limits=LIMITS)) == expected
    assert server.count("GET") == 0


def test_head_and_content_give_one_token(server: FaultyHttp, target: Path) -> None:
    """What was seen with the content is what the head says later, so that equal content is not taken again."""
    for path, answer in {
        "/etag": answers.ok(ETag='W/"1"'),
        "/time": answers.ok(Last_Modified=answers.in_seconds(-100)),
        "/packed": answers.gzipped(CONTENT),
    }.items():
        uri = server.route(path, answer)
        assert fetch(uri, target, limits=LIMITS).token == version_token(uri, limits=LIMITS)


def test_heads_fail_as_contents_do(server: FaultyHttp) -> None:
    """The same verdicts, one for each address, and one failure stops no other."""
    uris = {
        server.route("/gone", answers.status(410)): ErrorKind.NOT_FOUND,
        server.route("/silent", answers.silent()): ErrorKind.TIMEOUT,
        server.route("/reset", answers.reset()): ErrorKind.SOURCE_UNAVAILABLE,
        server.route("/busy", answers.status(503, Retry_After="30")): ErrorKind.SOURCE_UNAVAILABLE,
        server.route("/closed", answers.status(401)): ErrorKind.CREDENTIALS_REFUSED,
        "ftp://host/x": ErrorKind.UNREADABLE,
    }
    fine = server.route("/fine", answers.ok(ETag='"1"'))
    found = dict(version_tokens([*uris, fine], limits=LIMITS))
    assert {uri: answer.kind for uri, answer in found.items() if isinstance(answer, Failure)} == uris
    assert found[fine] == 'etag:"1"'


def test_a_signed_address_that_refuses_a_head_has_no_token(server: FaultyHttp) -> None:
    """Signatures are for one method: a refused head says nothing about the credentials."""
    uri = server.route("/r.pdf", answers.no_head(answers.ok(), 403))
    assert version_token(f"{uri}?X-Amz-Signature=abc", limits=LIMITS) is None
    with pytest.raises(EnvironmentUnfit):
        version_token(uri, limits=LIMITS)


def test_many_tokens_are_asked_for_at_once_and_in_order(server: FaultyHttp) -> None:
    """Several heads are on their way together, and answers keep the order of the addresses."""
    opened = threading.Event()
    uris = [server.route(f"/{number}", answers.gate(opened, answers.ok(ETag=f'"{number}"'))) for number in range(40)]
    found = version_tokens(uris, limits=FetchLimits(), threads=8)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(list, found)
        while server.most_open < 8:
            assert not result.done()
            opened.wait(0.01)
        opened.set()
        assert result.result() == [(uri, f'etag:"{number}"') for number, uri in enumerate(uris)]
    assert server.most_open == 8


def test_a_dead_host_is_not_asked_for_each_of_its_reports(server: FaultyHttp) -> None:
    """After a few time-outs in a row the rest of its addresses fail without waiting."""
    uris = [server.route(f"/{number}", answers.silent()) for number in range(60)]
    found = list(version_tokens(uris, limits=FetchLimits(read_s=0.2), threads=2))
    assert {answer.kind for _, answer in found if isinstance(answer, Failure)} == {ErrorKind.TIMEOUT}
    assert (len(found), server.count("HEAD") <= 7) == (60, True)


# --- places at a host ------------------------------------------------------------


def test_no_more_requests_at_once_than_a_host_has_places(server: FaultyHttp, tmp_path: Path) -> None:
    """Ten fetches from five processes: two at a time, all of them in the end."""
    opened = threading.Event()
    uri = server.route("/r.pdf", answers.gate(opened, answers.ok(CONTENT)))
    slots = HostSlots(tmp_path / "places", 2)
    # not multiprocessing.Pool: ending its children by signal may wait for ever for one that has just begun
    with ProcessPoolExecutor(5, mp_context=multiprocessing.get_context("spawn")) as pool:
        done = [pool.submit(_fetch_in_child, uri, str(tmp_path / f"r{number}"), slots) for number in range(10)]
        while server.now_open < 2:
            assert not any(future.done() for future in done)
            opened.wait(0.01)
        opened.set()
        assert [future.result() for future in done] == [len(CONTENT)] * 10
    assert server.most_open == 2


def test_a_killed_holder_gives_its_place_back(tmp_path: Path) -> None:
    """SIGKILL leaves nothing to clean up: the place is free as soon as the process is gone."""
    slots = HostSlots(tmp_path / "places", 1)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_hold_for_ever, args=(slots, theirs))
    child.start()
    assert ours.recv() == 0
    with pytest.raises(TransientError) as raised, slots.take("host", 0.05):
        pass
    assert raised.value.kind == ErrorKind.LOCK_CONTENTION
    with slots.take("another host", 0.05):
        pass
    os.kill(child.pid, signal.SIGKILL)  # type: ignore[arg-type]
    child.join()
    with slots.take("host", 5) as number:
        assert number == 0


def test_places_are_kept_apart_within_one_process(tmp_path: Path) -> None:
    """Threads of one process get different places, and give them back."""
    slots = pickle.loads(pickle.dumps(HostSlots(tmp_path / "places", 2)))
    with slots.take("h", 1) as first, slots.take("h", 1) as second:
        assert {first, second} == {0, 1}
        with pytest.raises(TransientError), slots.take("h", 0):
            pass
    with slots.take("h", 0), slots.take("h", 0):
        pass


def test_a_folder_that_cannot_hold_places_stops_the_run(tmp_path: Path) -> None:
    """A file in the way is said by name."""
    (tmp_path / "places").write_text("a file")
    with pytest.raises(EnvironmentUnfit, match="places"), HostSlots(tmp_path / "places", 1).take("h", 1):
        pass


# --- local files and object stores ------------------------------------------------------------


def test_local_files_come_by_path_and_by_address(tmp_path: Path, target: Path) -> None:
    """A name with blanks and bytes that are no UTF-8 is found by both, with one token that changes with the file."""
    report = tmp_path / os.fsdecode(b"tower 7 \xff #1.pdf")
    report.write_bytes(CONTENT)
    for uri in (str(report), report.as_uri()):
        got = fetch(uri, target, limits=LIMITS)
        assert (target.read_bytes(), got.token) == (CONTENT, version_token(uri, limits=LIMITS))
    before = version_token(str(report), limits=LIMITS)
    report.write_bytes(CONTENT + b"!")
    assert version_token(str(report), limits=LIMITS) != before


def test_what_is_wrong_with_local_files(tmp_path: Path, target: Path) -> None:
    """A missing file, in whatever folder, is the report's fault; pipes are not waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.pdf").write_bytes(b"x" * 11)
    (tmp_path / "loop").symlink_to("loop")
    expected = {
        str(tmp_path / "missing.pdf"): (Verdict.QUARANTINE, ErrorKind.NOT_FOUND),
        str(tmp_path / "large.pdf" / "inside"): (Verdict.QUARANTINE, ErrorKind.NOT_FOUND),
        str(tmp_path / "nowhere" / "r.pdf"): (Verdict.QUARANTINE, ErrorKind.NOT_FOUND),
        str(tmp_path / "pipe"): (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
        str(tmp_path): (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
        str(tmp_path / ("x" * 300)): (Verdict.QUARANTINE, ErrorKind.NOT_FOUND),
        str(tmp_path / "loop"): (Verdict.QUARANTINE, ErrorKind.NOT_FOUND),
        str(tmp_path / "large.pdf"): (Verdict.QUARANTINE, ErrorKind.TOO_LARGE),
        "relative.pdf": (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
        "file://elsewhere/r.pdf": (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
        "file:///r%00.pdf": (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
        "": (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
    }
    assert {uri: verdict(failed(uri, target, limits=FetchLimits(max_bytes=10))) for uri in expected} == expected


def test_local_files_come_from_allowed_folders_only(tmp_path: Path, target: Path) -> None:
    """A table of reports cannot make the pipeline read other files, also not through a link; a mistyped folder stops no run."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "r.pdf").write_bytes(CONTENT)
    (outside / "secret").write_bytes(b"secret")
    (inside / "link.pdf").symlink_to(outside / "secret")
    limits = FetchLimits(folders=(inside,))
    assert fetch(str(inside / "r.pdf"), target, limits=limits).size_bytes == len(CONTENT)
    target.unlink()
    for path in (outside / "secret", inside / "link.pdf", inside / ".." / "out" / "secret"):
        assert verdict(failed(str(path), target, limits=limits)) == (Verdict.QUARANTINE, ErrorKind.UNREADABLE)
    assert failed(str(inside / "mistyped" / "r.pdf"), target, limits=limits).kind == ErrorKind.NOT_FOUND


MISSING, STOPS = (Verdict.QUARANTINE, ErrorKind.NOT_FOUND), (Verdict.STOP, ErrorKind.SOURCE_MISSING)


def test_a_configured_folder_that_is_gone_stops_the_run(tmp_path: Path, target: Path) -> None:
    """An unmounted disk leaves no folder, or an empty one; below one with anything in it a missing folder is a mistyped name."""
    home, other = tmp_path / "mount", tmp_path / "other"
    other.mkdir()
    (other / "x").touch()
    limits = FetchLimits(folders=(other, home), root=tmp_path)
    assert verdict(failed(str(home / "a" / "r.pdf"), target, limits=limits)) == STOPS
    home.mkdir()
    (home / ".hidden").touch()
    assert verdict(failed(str(home / "a" / "r.pdf"), target, limits=limits)) == STOPS
    (home / "b").mkdir()
    assert verdict(failed(str(home / "a" / "r.pdf"), target, limits=limits)) == MISSING
    assert verdict(failed(str(home / "b" / "r.pdf"), target, limits=limits)) == MISSING


def test_what_is_missing_in_the_projects_folder(tmp_path: Path, target: Path) -> None:
    """A mistyped folder is not found; the project's folder, a link in it or a folder directly below it that is gone stops."""
    root = tmp_path / "project"
    limits = FetchLimits(root=root)
    assert verdict(failed(str(root / "scans" / "r.pdf"), target, limits=limits)) == STOPS
    (root / "scans" / "there").mkdir(parents=True)
    (root / "disk").mkdir()
    (root / "link").symlink_to(tmp_path / "unmounted")
    (root / "link.pdf").symlink_to(tmp_path / "unmounted")
    (root / "file").touch()
    expected = {
        "scans/r.pdf": MISSING,
        "scans/typo/r.pdf": MISSING,
        "scans/there/r.pdf": MISSING,
        "scnas/r.pdf": MISSING,
        "r.pdf": MISSING,
        "link.pdf": MISSING,
        "file/r.pdf": MISSING,
        "scans/../typo/r.pdf": MISSING,
        "disk/r.pdf": STOPS,
        "disk/2026/r.pdf": STOPS,
        "link/r.pdf": STOPS,
    }
    assert {name: verdict(failed(str(root / name), target, limits=limits)) for name in expected} == expected
    assert verdict(failed(str(root), target, limits=limits)) == (Verdict.QUARANTINE, ErrorKind.UNREADABLE)


def test_what_is_missing_anywhere_else(tmp_path: Path, target: Path) -> None:
    """Of a path outside the project the first two folders must be there, for one of them may be where a disk was."""
    limits = FetchLimits(root=tmp_path / "project")
    assert verdict(failed(str(tmp_path / "typo" / "r.pdf"), target, limits=limits)) == MISSING
    assert verdict(failed("/r.pdf", target, limits=limits)) == MISSING
    for path in ("/no-such-mount/r.pdf", "/no-such-mount/disk/r.pdf", f"{tmp_path.parents[-2]}/no-such-disk/scans/r.pdf"):
        assert verdict(failed(path, target, limits=limits)) == STOPS


def test_a_file_that_changes_while_it_is_read_is_tried_again(tmp_path: Path, target: Path) -> None:
    """Half of the old and half of the new is no report; nor is the digest of the old with the token of the new."""
    report = tmp_path / "r.pdf"
    report.write_bytes(b"x" * 500_000)
    os.mkfifo(target)  # a pipe holds the copy up half way
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(fetch, str(report), target, limits=LIMITS)
        with target.open("rb") as taken:
            taken.read(1)
            os.utime(report, ns=(0, 0))
            taken.read()
        failure = result.exception()
    assert failure is not None
    assert verdict(classify(failure)) == (Verdict.RETRY, ErrorKind.INPUT_CHANGED)


def test_a_full_disk_is_not_the_sources_fault(server: FaultyHttp, tmp_path: Path) -> None:
    """An error in writing the target keeps its own verdict."""
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        fetch(server.route("/r.pdf", answers.ok(CONTENT)), full, limits=LIMITS)
    assert verdict(classify(raised.value)) == (Verdict.STOP, ErrorKind.DISK_FULL)


def test_objects_come_through_the_same_door(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsspec serves is fetched, listed and bounded as the rest (its store in memory stands for one far away)."""
    monkeypatch.setitem(uris.STORES, "memory", "fsspec")
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/a/r1.pdf", CONTENT)
    store.pipe("/bucket/r2.pdf", CONTENT)
    store.pipe("/bucket/notes.txt", b"")
    try:
        uri = "memory://bucket/r2.pdf"
        assert list_index("memory://bucket") == ["memory://bucket/a/r1.pdf", "memory://bucket/notes.txt", uri]
        assert fetch(uri, target, limits=LIMITS).size_bytes == len(CONTENT)
        target.unlink()
        assert failed("memory://bucket/none", target).kind == ErrorKind.NOT_FOUND
        assert failed(uri, target, limits=FetchLimits(max_bytes=3)).kind == ErrorKind.TOO_LARGE
    finally:
        store.rm("/bucket", recursive=True)


# --- index pages and folders ------------------------------------------------------------


def test_links_of_an_index_page(server: FaultyHttp) -> None:
    """Links to files on the same host, absolute and sorted, each once; folders and orders of the page are left out."""
    page = b"""<!doctype html><html><body><a href="b.pdf">B</a> <A HREF='/reports/a.pdf?v=1&amp;w=2#p3'>A</A>
    <a href="b.pdf#page=2">again</a> <a href="../up/c%20d.pdf">C</a> <a href="notes.txt">n</a> <a>none</a>
    <a href="http://elsewhere.example/x.pdf">x</a> <a href="mailto:x@y.pdf">m</a> <a href="file:///etc/x.pdf">f</a>
    <a href="http://[::1/x.pdf">broken</a> <a href="../">up</a> <a href="?C=N;O=D">name</a> <a href=".x.pdf">.</a>
    <!-- <a href="hidden.pdf"> --> \xff</body>"""
    uri = server.route("/reports/", answers.ok(page, Content_Type="text/html"))
    assert list_index(uri) == [
        server.url("/reports/a.pdf?v=1&w=2"),
        server.url("/reports/b.pdf"),
        server.url("/reports/notes.txt"),
        server.url("/up/c%20d.pdf"),
    ]


def test_links_are_relative_to_where_the_page_came_from(server: FaultyHttp) -> None:
    """After a redirect, and by the page's own base."""
    server.route("/new/", answers.ok(b'<a href="r.pdf">r</a>', Content_Type="text/html"))
    server.route("/based/", answers.ok(b'<base href="/other/"><a href="r.pdf">r</a>', Content_Type="text/html"))
    assert list_index(server.route("/old", answers.redirect("/new/"))) == [server.url("/new/r.pdf")]
    assert list_index(server.url("/based/")) == [server.url("/other/r.pdf")]


def test_an_index_that_is_not_there_stops_the_run(server: FaultyHttp, tmp_path: Path) -> None:
    """It is the source that is missing: no empty list, which would retire every report."""
    for uri in (server.url("/none/"), server.route("/r.pdf", answers.ok(CONTENT)), str(tmp_path / "none")):
        with pytest.raises(EnvironmentUnfit) as raised:
            list_index(uri)
        assert raised.value.kind == ErrorKind.SOURCE_MISSING
    with pytest.raises(TransientError):
        list_index(server.route("/down/", answers.status(503)))


def test_files_of_a_folder(tmp_path: Path) -> None:
    """All below it, as addresses that are fetched again, without hidden names."""
    for name in ("b.pdf", "deep/er/a #1.pdf", ".part.pdf", ".hidden/c.pdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(CONTENT)
    found = list_index(str(tmp_path))
    assert found == [(tmp_path / "b.pdf").as_uri(), (tmp_path / "deep/er/a #1.pdf").as_uri()]
    assert fetch(found[1], tmp_path / "target", limits=LIMITS).size_bytes == len(CONTENT)


# --- secrets ------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://u:hunter2@h/r.pdf", "https://h/r.pdf"),
        ("https://h/r?id=7&X-Amz-Signature=hunter2&X-Amz-Date=hunter2", "https://h/r?id=7&X-Amz-Signature=***&X-Amz-Date=***"),
        ("https://h/r?sv=1&sig=hunter2", "https://h/r?sv=1&sig=***"),
        (
            "https://h/r?access_token=hunter2&api_key=hunter2&AWSAccessKeyId=hunter2",
            "https://h/r?access_token=***&api_key=***&AWSAccessKeyId=***",
        ),
        ("https://h/r?id=" + "hunter2" * 8, "https://h/r?id=***"),
        ("https://h/r#hunter2", "https://h/r"),
        ("https://u:hunter2@[::1/r?sig=hunter2", "https://[::1/r"),
        ("/local/r.pdf", "/local/r.pdf"),
        ("scans/tower #1? 50%.pdf", "scans/tower #1? 50%.pdf"),
        ("//u:hunter2@h/r.pdf", "//h/r.pdf"),
        ("h/r.pdf?id=7&sig=hunter2#x", "h/r.pdf?id=7&sig=***"),
        ("h/r.pdf#access_token=hunter2", "h/r.pdf#access_token=***"),
    ],
)
def test_addresses_are_shown_without_their_secrets(uri: str, shown: str) -> None:
    """User names, signatures, tokens and keys are left out; what tells reports apart stays."""
    assert redacted(uri) == shown
    assert "hunter2" not in redacted(uri)


def test_local_files_are_shown_by_their_paths(tmp_path: Path, target: Path) -> None:
    """From the project's folder where they lie in it, else whole; what is no text in a name stands as in an address."""
    root = tmp_path / "project"
    for uri in (str(root / "scans" / "a b#1.pdf"), (root / "scans" / "a b#1.pdf").as_uri()):
        assert uris.shown_uri(uri, root) == "scans/a b#1.pdf"
    assert uris.shown_uri("file:///mnt/%C3%BC.pdf", root) == "/mnt/\u00fc.pdf"
    assert uris.shown_uri("file:///mnt/%FF%0A.pdf", root) == "/mnt/%FF%0A.pdf"
    assert uris.shown_uri("https://u:hunter2@h/r.pdf", root) == "https://h/r.pdf"
    root.mkdir()
    (root / "x").touch()
    failure = failed(str(root / "scans" / "r.pdf"), target, limits=FetchLimits(root=root))
    assert failure.message == "there is no scans/r.pdf; deliver it again or mend its address"


@pytest.mark.parametrize("case", [*TRANSIENT, *REJECTED])
def test_no_failure_tells_a_secret(server: FaultyHttp, target: Path, case: str) -> None:
    """No message, and no cause that a log would print with it, has the password or the signature."""
    answer, _ = (TRANSIENT | REJECTED)[case]
    uri = server.route("/report", answer).replace("//", "//me:hunter2@") + "?sig=hunter2"
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whichever it is
        fetch(uri, target, limits=LIMITS)
    link: BaseException | None = raised.value
    while link is not None:
        assert "hunter2" not in f"{link!s} {link!r}"
        link = link.__cause__


def test_each_status_has_a_verdict() -> None:
    """No status from 201 to 599 is left to chance."""
    for code in range(201, 600):
        error = of_status(code, "http://h/r", headers={}, limits=LIMITS, now=NOW)
        assert isinstance(error, TransientError | UnitRejected | EnvironmentUnfit)


def _fetch_in_child(uri: str, target: str, slots: HostSlots) -> int:
    return fetch(uri, Path(target), limits=FetchLimits(), slots=slots).size_bytes


def _hold_for_ever(slots: HostSlots, pipe: multiprocessing.connection.Connection) -> None:
    with slots.take("host", 5) as number:
        pipe.send(number)
        signal.pause()


def self_signed(folder: Path) -> Path:
    """A certificate with its key that nobody vouches for."""
    path = folder / "server.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
    path.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return path
