"""Addresses of reports in one form, and the keys that are made of them."""

from __future__ import annotations

import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.inspections.source_uris import canonical_uri, report_key
from resources.errors import UnitRejected

ROOT = Path(__file__).parents[2]
PROJECT = Path("/srv/project")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:8443/a", "https://example.com:8443/a"),
        ("https://example.com:/a", "https://example.com/a"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/../../a/..", "http://example.com/"),
        ("http://example.com/%2e%2E/a", "http://example.com/a"),
        ("http://example.com/a//b/", "http://example.com/a//b/"),
        ("http://example.com/%7euser/%e4%bd%a0", "http://example.com/~user/%E4%BD%A0"),
        ("http://example.com/你 1.pdf", "http://example.com/%E4%BD%A0%201.pdf"),
        ("http://example.com/a%2Fb", "http://example.com/a%2Fb"),
        ("http://example.com/100%.pdf", "http://example.com/100%25.pdf"),
        ("http://example.com/a?b=2&a=1#page=3", "http://example.com/a?b=2&a=1"),
        ("http://example.com?x=1", "http://example.com/?x=1"),
        ("http://[2001:DB8::1]:80/a", "http://[2001:db8::1]/a"),
        ("http://BÜCHER.example/a", "http://xn--bcher-kva.example/a"),
        ("S3A://bucket/Key%20with#odd name.pdf", "s3://bucket/Key%20with#odd name.pdf"),
        ("gcs://bucket/a/../b", "gs://bucket/a/../b"),
        ("az://container@account/a.pdf", "az://container@account/a.pdf"),
        ("/srv/project/reports/a b.pdf", "file:reports/a%20b.pdf"),
        ("reports/../reports/./a#1?.pdf", "file:reports/a%231%3F.pdf"),
        ("file:///srv/project/reports/a%20b.pdf", "file:reports/a%20b.pdf"),
        ("file://localhost/mnt/a.pdf", "file:///mnt/a.pdf"),
        ("/mnt//a.pdf", "file:///mnt/a.pdf"),
        ("../elsewhere/a.pdf", "file:///srv/elsewhere/a.pdf"),
        ("/srv/projects/a.pdf", "file:///srv/projects/a.pdf"),
    ],
)
def test_an_address_has_one_form(uri: str, expected: str) -> None:
    """Spellings that mean one document come to one form (RFC 3986, 6.2.2 and 6.2.3), and that form stays."""
    assert canonical_uri(uri, root=PROJECT) == expected
    assert canonical_uri(expected, root=PROJECT) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "https://user:secret@example.com/r.pdf?id=7",
        "https://example.com/r.pdf?id=7&token=abc",
        "https://example.com/r.pdf?api_key=abc&id=7",
        "https://example.com/r.pdf?X-Amz-Date=1&id=7&X-Amz-Credential=c&X-Amz-Signature=abc",
        "https://example.com/r.pdf?id=7&X-Goog-Signature=abc&X-Goog-Expires=60",
        "https://example.com/r.pdf?sv=2024&id=7&se=2026-01-01&sr=b&sp=r&sig=abc",
        "https://example.com/r.pdf?id=7&Expires=99&Signature=abc&Key-Pair-Id=K",
    ],
)
def test_credentials_do_not_enter_a_key(uri: str) -> None:
    """User names, passwords, tokens and signatures change where the document does not."""
    assert canonical_uri(uri) == "https://example.com/r.pdf?id=7"


def test_parameters_that_may_name_a_document_stay() -> None:
    """`key`, `code`, and `se` or `expires` without a signature tell documents from one another."""
    for query in ("key=a", "code=a", "se=1", "expires=2026", "policy=9"):
        assert canonical_uri(f"http://h/d?{query}") == f"http://h/d?{query}"


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://example.com/a",
        "http:///a",
        "http://h:port/a",
        "s3:///a",
        "gs://@/a",
        "file://other/a",
        "",
        "http://a%2Fb/c",
        "http://a%40b/c",
        "http://a%3F/c",
        "https://h%\u00e9A/c",
    ],
)
def test_what_is_no_address_is_rejected(uri: str) -> None:
    """No key is made of it."""
    with pytest.raises(UnitRejected):
        canonical_uri(uri)


PIECES = st.text(st.sampled_from(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:@%/ \u00e9\u4f60"), max_size=20)


@given(path=PIECES, query=st.none() | PIECES, host=st.sampled_from(["h", "EXAMPLE.com", "h:80", "u:p@h", "[::1]"]))
def test_the_form_is_final_for_web_addresses(path: str, query: str | None, host: str) -> None:
    """Applied twice it gives the same as once."""
    once = canonical_uri(f"http://{host}/{path}" + ("" if query is None else f"?{query}"))
    assert canonical_uri(once) == once


@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_the_form_is_final_for_files(name: str) -> None:
    """Whatever a file is called, its address in the project stays what it is, and names the same file."""
    once = canonical_uri(str(PROJECT / "reports" / name.lstrip("/")), root=PROJECT)
    assert canonical_uri(once, root=PROJECT) == once


@given(text=st.text(st.sampled_from(string.ascii_letters + string.digits + "-._~"), min_size=1), marks=st.data())
def test_percent_encoding_of_unreserved_characters_means_nothing(text: str, marks: st.DataObject) -> None:
    """Any of them may be written as %XX, in either case."""
    spelled = "".join(
        marks.draw(st.sampled_from([char, f"%{ord(char):02x}", f"%{ord(char):02X}"]), label="spelling") for char in text
    )
    assert canonical_uri(f"http://h/d/{spelled}") == canonical_uri(f"http://h/d/{text}")


def test_a_moved_project_keeps_its_keys() -> None:
    """A report inside the project's folder has the same key wherever that lies, given relative, absolute or as file:."""
    keys = {
        report_key("A", canonical_uri(uri, root=Path(root)))
        for root in ("/srv/project", "/mnt/new home")
        for uri in ("reports/a b.pdf", f"{root}/reports/a b.pdf", f"file://{root.replace(' ', '%20')}/reports/a%20b.pdf")
    }
    assert len(keys) == 1


GOLDEN = {
    ("BR-1", "http://example.com/a.pdf"): "27c220a32b60264f255db3a37436c06143281b6a011ef625d23f26bb406b07ce",
    ("BR-2", "http://example.com/a.pdf"): "6c88942c2a8da698d7666a3a3fc347f7b50a070f1ad41f5503898c7a87c2d9af",
    ("BR\u00fccke", "file:reports/\u00fc.pdf"): "e3f881ca908cd609a6b7cedd95ac7134f8527f2d99b6528fa099eaddbb20aec7",
}


def test_keys_of_fixed_reports_do_not_change() -> None:
    """A changed key makes every record anew: raise KEY_VERSION and say so."""
    assert {pair: report_key(pair[0], canonical_uri(pair[1])) for pair in GOLDEN} == GOLDEN


def test_composed_and_decomposed_names_of_a_site_are_one() -> None:
    """Tables from different machines spell an umlaut in two ways."""
    assert report_key("Br\u00fccke ", "file:a") == report_key("Bru\u0308cke", "file:a")


@pytest.mark.parametrize(("seed", "locale"), [("1", "C"), ("2", "tr_TR.UTF-8"), ("3", "C.UTF-8")])
def test_keys_are_equal_across_processes(seed: str, locale: str) -> None:
    """Another hash seed, locale and working folder give the same keys, and the same digest of rules."""
    program = (
        "from assets.inspections.source_uris import *; from assets.inspections.record import ExtractionRules;"
        "print(report_key('BR-1', canonical_uri('HTTP://EXAMPLE.com/I/%69.pdf')), ExtractionRules().digest)"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, "-c", program], env=env, cwd="/", capture_output=True, text=True, check=True).stdout
    from assets.inspections.record import ExtractionRules

    assert found.split() == [report_key("BR-1", canonical_uri("http://example.com/I/i.pdf")), ExtractionRules().digest]
