"""Whatever an object, an event or a right says, the document that tells it is valid and says nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from assets.digitization.premis import (
    NAMESPACE,
    PremisAgent,
    PremisEvent,
    PremisObject,
    RightsStatement,
    premis_document,
    read_document,
    xml_text,
)
from tests.support.sources import SHARED

SCHEMA = SHARED / "schemas" / "premis-3.0.xsd"
TEXT = st.text(st.characters(), max_size=20)
"""Any code point at all, halves of surrogate pairs and control characters with them."""

SOME_TEXT = st.none() | TEXT
OBJECTS = st.builds(
    PremisObject,
    identifier=TEXT,
    sha256=TEXT,
    size_bytes=st.integers(0, (1 << 63) - 1),
    format_name=TEXT,
    original_name=SOME_TEXT,
    location=SOME_TEXT,
    properties=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    software=SOME_TEXT,
    derived_from=SOME_TEXT,
    derived_by=SOME_TEXT,
    has_copies=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
)
EVENTS = st.builds(
    PremisEvent,
    identifier=TEXT,
    label=st.sampled_from(["ingestion", "message digest calculation", "validation", "migration", "fixity check"]) | TEXT,
    at=st.datetimes(datetime(1000, 1, 1), datetime(9998, 1, 1), timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9))])),
    outcome=st.sampled_from(["success", "fail"]) | TEXT,
    detail=TEXT,
    notes=st.lists(TEXT, max_size=2).map(tuple),
    agent=TEXT,
    linked=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
)
AGENTS = st.builds(
    PremisAgent, identifier=TEXT, name=TEXT, kind=st.sampled_from(["software", "person"]) | TEXT, version=SOME_TEXT
)
RIGHTS = st.none() | st.builds(
    RightsStatement,
    identifier=TEXT,
    basis=st.sampled_from(["copyright", "license", "statute", "other"]),
    status=SOME_TEXT,
    jurisdiction=st.none() | st.sampled_from(["de", "us"]),
    terms=SOME_TEXT,
    note=SOME_TEXT,
    acts=st.lists(TEXT, max_size=2).map(tuple),
)


@pytest.fixture(scope="module")
def schema() -> etree.XMLSchema:
    """The Library of Congress's schema."""
    if not SCHEMA.is_file():
        pytest.skip("the PREMIS schema is not there: needs ../shared/data/schemas/premis-3.0.xsd")
    return etree.XMLSchema(etree.parse(SCHEMA))


@settings(max_examples=60, deadline=None)
@given(
    objects=st.lists(OBJECTS, min_size=1, max_size=2), events=st.lists(EVENTS, max_size=2), agents=st.lists(AGENTS), rights=RIGHTS
)
def test_any_values_make_a_valid_document(
    schema: etree.XMLSchema,
    objects: list[PremisObject],
    events: list[PremisEvent],
    agents: list[PremisAgent],
    rights: RightsStatement | None,
) -> None:
    """No text that a name, a tag of a picture or a configuration may hold breaks the schema; equal values give equal bytes."""
    content = premis_document(objects, events, agents, rights)
    schema.assertValid(etree.fromstring(content))
    assert premis_document(objects, events, agents, rights) == content


@settings(deadline=None)
@given(text=TEXT)
def test_texts_come_back_as_they_were_told(text: str) -> None:
    """Line ends, spaces and markup with them; only what XML cannot hold is escaped."""
    one = PremisObject(text, "a" * 64, 1, "TIFF", properties={"note": text})
    root = etree.fromstring(premis_document([one], [], []))
    space = {"p": NAMESPACE}
    for name in ("objectIdentifierValue", "significantPropertiesValue"):
        assert (root.findtext(f".//p:{name}", namespaces=space) or "") == xml_text(text)


@pytest.mark.parametrize("text", ["", " ", "\t a \r\n", "]]>", "<!-- & -->", "&#0;", "\u202e\ufeff\U0001f4f7"])
def test_texts_that_xml_can_hold_are_left_alone(text: str) -> None:
    """An escape where none is needed would tell another name."""
    assert xml_text(text) == text


@pytest.mark.parametrize(("text", "told"), [("\x00", "\\x00"), ("\x1f", "\\x1f"), ("\udce4", "\\xdce4"), ("\ufffe", "\\xfffe")])
def test_texts_that_xml_cannot_hold_are_told_visibly(text: str, told: str) -> None:
    """None is dropped: two names that differ in it stay two."""
    assert xml_text(f"a{text}b") == f"a{told}b"


def test_everything_that_an_object_says_is_in_its_document() -> None:
    """Each value of object, event, agent and right, when it changes, changes the bytes."""
    one = PremisObject("o", "a", 1, "f", "n", "l", {"p": "1"}, "s", "d", "e", (("c", "e"),))
    event = PremisEvent("e", "migration", datetime(2024, 1, 1, tzinfo=UTC), "success", "d", ("n",), "t", (("o", "source"),))
    agent, right = PremisAgent("t", "T", "software", "1"), RightsStatement("r", "copyright", "public", "de", "x", "n", ("use",))
    whole = premis_document([one], [event], [agent], right)
    other = {str: "other", int: 2, dict: {"p": "2"}, datetime: datetime(2025, 1, 1, tzinfo=UTC)}
    for place, value in enumerate((one, event, agent, right)):
        for field in fields(value):
            if field.name == "terms":
                continue  # copyright has none; the other bases are tried with the schema
            now = getattr(value, field.name)
            new = other[type(now)] if not isinstance(now, tuple) else (now[0], now[0])
            values = [one, event, agent, right]
            values[place] = replace(value, **{field.name: new})
            assert premis_document([values[0]], [values[1]], [values[2]], values[3]) != whole, field.name


def test_vocabularies_terms_are_told_by_their_addresses() -> None:
    """A validator or an auditor follows them; a text that is no term of theirs claims none."""
    event = PremisEvent("e", "fixity check", datetime(2024, 1, 1, tzinfo=UTC), "fail", "", (), "t", ())
    made = [PremisObject("a", "a", 1, "TIFF"), PremisObject("b", "b", 1, "JP2", digest_algorithm="of names and digests")]
    root = etree.fromstring(premis_document(made, [event], [PremisAgent("t", "T")]))
    assert [found.rpartition("preservation/")[2] for found in root.xpath("//@valueURI")] == [
        "cryptographicHashFunctions/sha256",
        "eventType/fix",
        "eventOutcome/fai",
        "agentType/sof",
    ]
    assert all(found.get("valueURI").startswith(found.get("authorityURI") + "/") for found in root.xpath("//*[@valueURI]"))


def test_a_document_is_read_back_with_its_key_and_digests(schema: etree.XMLSchema) -> None:
    """The key stands outside of what the schema governs, and both are found without the ledger."""
    made = [PremisObject("a b", "a" * 64, 1, "TIFF"), PremisObject("c", "c" * 64, 1, "JP2")]
    content = premis_document(made, [], [], unit_key="k" * 64)
    schema.assertValid(etree.fromstring(content))
    told = read_document(content)
    assert (told.unit_key, dict(told.digests)) == ("k" * 64, {"a b": "a" * 64, "c": "c" * 64})
    assert read_document(premis_document(made, [], [])).unit_key is None


def test_a_long_text_is_read_back() -> None:
    """A picture's tags may hold more than a parser takes for a document by default."""
    long = PremisObject("a", "a" * 64, 1, "TIFF", properties={"capture: description": "x" * 11_000_000})
    assert dict(read_document(premis_document([long], [], [])).digests) == {"a": "a" * 64}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<premis/>",
        premis_document([PremisObject("a", "a" * 64, 1, "TIFF")], [], [])[:-5],
        premis_document([PremisObject("a", "", 1, "TIFF")], [], []),
        f'<premis xmlns="{NAMESPACE}" version="3.0"/>'.encode(),
        premis_document([PremisObject("a", "a" * 64, 1, "&e;")], [], [])
        .replace(b"&amp;e;", b"&e;")
        .replace(b"<premis", b'<!DOCTYPE premis [<!ENTITY e SYSTEM "file:///etc/passwd">]><premis', 1),
    ],
    ids=["empty", "no-namespace", "cut", "no-digest", "no-object", "entity"],
)
def test_what_is_no_whole_document_is_refused(content: bytes) -> None:
    """Cut short, of another kind, or with entities."""
    with pytest.raises(ValueError, match="found"):
        read_document(content)
