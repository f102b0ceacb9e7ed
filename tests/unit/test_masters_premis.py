"""The preservation export is valid PREMIS 3.0 for any rights and any names, and events keep their identifiers."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from lxml import etree

from assets.digitization.events import Event, EventType, event_id, event_work
from assets.digitization.premis import NAMESPACE, PremisAgent, PremisEvent, PremisObject, RightsStatement, premis_document
from assets.digitization.slots import is_due, slot_of
from resources.windows import BatchWindow
from tests.support.sources import SHARED

SCHEMA = SHARED / "schemas" / "premis-3.0.xsd"
AT = datetime(2024, 6, 1, 12, tzinfo=UTC)
MASTER = PremisObject(
    "box1/a.tif",
    "a" * 64,
    1234,
    "TIFF",
    "a.tif",
    "box1/a.tif",
    {"width": "90", "colour": "rgb"},
    "scanner 1",
    has_copies=(("copies/a.jp2", "e2"),),
)
COPY = PremisObject("copies/a.jp2", "b" * 64, 567, "JPEG 2000", derived_from="box1/a.tif", derived_by="e2")
EVENTS = [
    PremisEvent("e1", "ingestion", AT, "success", "captured", (), "Tilewright", (("box1/a.tif", "source"),)),
    PremisEvent(
        "e2",
        "migration",
        AT,
        "success",
        "derived",
        ("one", "two"),
        "Tilewright",
        (("box1/a.tif", "source"), ("copies/a.jp2", "outcome")),
    ),
]
AGENTS = [PremisAgent("Tilewright", "Tilewright", version="0.1.0")]


@pytest.fixture(scope="module")
def schema() -> etree.XMLSchema:
    """The Library of Congress's schema."""
    if not SCHEMA.is_file():
        pytest.skip("the PREMIS schema is not there: ../shared/data/schemas/premis-3.0.xsd")
    return etree.XMLSchema(etree.parse(SCHEMA))


@pytest.mark.parametrize(
    "rights",
    [
        None,
        RightsStatement("r", "copyright", status="copyrighted", jurisdiction="de", note="a note", acts=("disseminate",)),
        RightsStatement("r", "license", terms="CC BY 4.0"),
        RightsStatement("r", "statute", jurisdiction="de", terms="DNBG", acts=("replicate", "migrate")),
        RightsStatement("r", "other", terms="donor"),
    ],
)
def test_a_document_is_valid(schema: etree.XMLSchema, rights: RightsStatement | None) -> None:
    """Object, copy, events, agent and rights of every basis pass the schema."""
    schema.assertValid(etree.fromstring(premis_document([MASTER, COPY], EVENTS, AGENTS, rights)))


def test_an_object_without_a_copy_is_valid(schema: etree.XMLSchema) -> None:
    """A master that could not be derived is exported with what did happen to it."""
    lone = PremisObject("box1/a.tif", "a" * 64, 1, "TIFF")
    schema.assertValid(etree.fromstring(premis_document([lone], EVENTS[:1], AGENTS)))


def test_names_that_xml_cannot_hold_are_escaped(schema: etree.XMLSchema) -> None:
    """A zero byte or half a surrogate pair in a name breaks no export."""
    odd = PremisObject("box/\x00\udce4<&>\u00e4.tif", "a" * 64, 1, "TIFF", original_name="\x1f")
    content = premis_document([odd], [], AGENTS)
    schema.assertValid(etree.fromstring(content))
    assert "box/\\x00\\xdce4&lt;&amp;&gt;\u00e4.tif".encode() in content


def test_master_copy_and_event_point_at_one_another() -> None:
    """The migration links both, each says what it is of the other, and both name the event."""
    root = etree.fromstring(premis_document([MASTER, COPY], EVENTS, AGENTS))
    space = {"p": NAMESPACE}
    kinds = root.xpath("//p:relationshipSubType/text()", namespaces=space)
    assert kinds == ["is source of", "has source"]
    assert root.xpath("//p:relatedEventIdentifierValue/text()", namespaces=space) == ["e2", "e2"]
    assert root.xpath("//p:object[2]//p:linkingEventIdentifierValue/text()", namespaces=space) == ["e2"]


def test_equal_values_give_equal_bytes() -> None:
    """No time and no new identifier comes into an export."""
    assert premis_document([MASTER, COPY], EVENTS, AGENTS) == premis_document([MASTER, COPY], EVENTS, AGENTS)


def test_event_identifiers_are_these() -> None:
    """Golden identifiers: an archive's events must never be named anew."""
    sha256 = "0" * 64
    assert event_id(EventType.INGESTION, sha256) == "cf99e7560c41d0382843ceacdc96a4c821a2ef1d38c7439a5d5ce2cde682555b"
    assert (
        event_id(EventType.FIXITY, sha256, period="2024-06") == "0f5d26f3a3b07d95831e04dca336462270398a63dc9762af58c265c3d4a05274"
    )
    assert (
        event_id(EventType.MIGRATION, sha256, derivation="d" * 64)
        == "19c5cc417e6fac2524c44adfb52caa9a6aa680845e4a97782cc64a14a836e5e7"
    )
    assert len({event_id(kind, sha256) for kind in EventType}) == len(EventType)


def test_identifiers_are_equal_in_another_process_and_locale() -> None:
    """Neither hash seed nor locale nor time zone goes into them."""
    code = (
        "import json\n"
        "from assets.digitization.events import *\n"
        "print(json.dumps([event_id(kind, 'ab' * 32, period='2024') for kind in EventType]))"
    )
    for seed, locale in (("1", "C"), ("2", "tr_TR.UTF-8")):
        environment = {"PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": "Asia/Tokyo", "PATH": ""}
        done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
        assert json.loads(done.stdout) == [event_id(kind, "ab" * 32, period="2024") for kind in EventType]


def test_a_unit_that_records_an_event_makes_its_row() -> None:
    """The row is named by the unit's key and says what happened."""
    event = Event(EventType.VALIDATION, "a" * 64, "fail", {"fault": "cut short"}, at=AT)
    work = event_work(event, window="2024-06-01")
    made = work.work(Path("unused"))
    assert work.unit.key == event.event_id
    assert work.unit.output_uri == f"row:preservation_events/{event.event_id}"
    assert made.rows[0].values["outcome"] == "fail"


def test_slots_spread_a_period_and_never_leave_it() -> None:
    """Every content has its moment within the half-open period, and moments spread evenly."""
    month = BatchWindow("2024-06", AT, AT + timedelta(days=30))
    days = [0] * 30
    for number in range(3000):
        moment = slot_of(hashlib.sha256(str(number).encode()).hexdigest(), month)
        assert month.start <= moment < month.end
        days[(moment - month.start).days] += 1
    assert min(days) > 60
    assert max(days) < 140


def test_a_content_is_due_from_its_slot_on_unless_it_came_later() -> None:
    """What was captured after its slot was read then."""
    month = BatchWindow("2024-06", AT, AT + timedelta(days=30))
    half = "8" + "0" * 63
    assert not is_due(half, month, known_since=AT, now=AT + timedelta(days=14))
    assert is_due(half, month, known_since=AT, now=AT + timedelta(days=15))
    assert not is_due(half, month, known_since=AT + timedelta(days=16), now=AT + timedelta(days=20))
