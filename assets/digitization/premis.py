"""PREMIS 3.0 as XML: one document for an object, with its copies, its events, the agents and the rights.

Written in the order of the schema (premis-3.0.xsd), which a validator insists on. Equal values give equal bytes: nothing here
asks for the time or makes an identifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lxml import etree

NAMESPACE = "http://www.loc.gov/premis/v3"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_LOCAL = "local"
_VOCABULARY = "http://id.loc.gov/vocabulary/preservation"
_TARGET = "tilewright"
_TERMS = {
    "eventType": {
        "ingestion": "ing",
        "message digest calculation": "mes",
        "validation": "val",
        "migration": "mig",
        "fixity check": "fix",
    },
    "eventOutcome": {"success": "suc", "fail": "fai"},
    "cryptographicHashFunctions": {"SHA-256": "sha256"},
    "agentType": {"software": "sof", "person": "per", "organization": "org"},
}
"""Codes of the Library of Congress's vocabularies of preservation by their labels; what has none is told as it is."""


@dataclass(frozen=True, slots=True)
class PremisObject:
    """A file, or the files of a copy as one. `properties` are significant properties by name; `location` is where it lies."""

    identifier: str
    sha256: str
    size_bytes: int
    format_name: str
    original_name: str | None = None
    location: str | None = None
    properties: Mapping[str, str] | None = None
    software: str | None = None
    derived_from: str | None = None
    derived_by: str | None = None
    has_copies: tuple[tuple[str, str], ...] = ()
    digest_algorithm: str = "SHA-256"


@dataclass(frozen=True, slots=True)
class PremisEvent:
    """An event as an export tells it. `linked` are object identifiers with their roles."""

    identifier: str
    label: str
    at: datetime
    outcome: str
    detail: str
    notes: tuple[str, ...]
    agent: str
    linked: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PremisAgent:
    """Who or what did it."""

    identifier: str
    name: str
    kind: str = "software"
    version: str | None = None


@dataclass(frozen=True, slots=True)
class RightsStatement:
    """What the archive may do with an object, as configured."""

    identifier: str
    basis: str
    status: str | None = None
    jurisdiction: str | None = None
    terms: str | None = None
    note: str | None = None
    acts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What a written document says of itself: the key of the unit that wrote it, and digests of its objects by identifier."""

    unit_key: str | None
    digests: Mapping[str, str]


def premis_document(
    objects: Sequence[PremisObject],
    events: Sequence[PremisEvent],
    agents: Sequence[PremisAgent],
    rights: RightsStatement | None = None,
    *,
    unit_key: str | None = None,
) -> bytes:
    """The whole document as UTF-8 bytes. `unit_key` stands before its root, where the schema has no say."""
    root = etree.Element(_name("premis"), nsmap={None: NAMESPACE, "xsi": _XSI}, version="3.0")
    for one in objects:
        _object(root, one, [event for event in events if any(name == one.identifier for name, _ in event.linked)], rights)
    for event in events:
        _event(root, event)
    for agent in agents:
        _agent(root, agent)
    if rights is not None:
        _rights(root, rights, [one.identifier for one in objects])
    if unit_key is not None:
        root.addprevious(etree.ProcessingInstruction(_TARGET, f'unit_key="{unit_key}"'))
    return bytes(etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", pretty_print=True))


def read_document(content: bytes) -> Told:
    """Read a document back, without entities and without the network. Raises `ValueError` for anything else."""
    try:
        root = etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True))
    except etree.XMLSyntaxError as error:
        raise ValueError(f"found no XML: {error}") from error
    if root.tag != _name("premis") or root.getroottree().docinfo.doctype:
        raise ValueError(f"root: found {root.tag}; allowed: premis, without a document type")
    keys = [before.get("unit_key") for before in root.itersiblings(etree.PI, preceding=True) if before.target == _TARGET]
    digests = {}
    for found in root.iterchildren(_name("object")):
        value = found.findtext(f"{_name('objectIdentifier')}/{_name('objectIdentifierValue')}")
        digest = found.findtext(f"{_name('objectCharacteristics')}/{_name('fixity')}/{_name('messageDigest')}")
        if not value or not digest:
            raise ValueError("object: found none of its identifier or digest; allowed: both")
        digests[value] = digest
    if not digests:
        raise ValueError("objects: found none; allowed: at least one")
    return Told(keys[0] if keys else None, digests)


def _object(root: Any, one: PremisObject, events: Iterable[PremisEvent], rights: RightsStatement | None) -> None:
    found = _under(root, "object")
    found.set(f"{{{_XSI}}}type", "file")
    _identifier(found, "objectIdentifier", _LOCAL, one.identifier)
    for name, value in sorted((one.properties or {}).items()):
        both = _under(found, "significantProperties")
        _under(both, "significantPropertiesType", name)
        _under(both, "significantPropertiesValue", value)
    traits = _under(found, "objectCharacteristics")
    _under(traits, "compositionLevel", "0")
    fixity = _under(traits, "fixity")
    _term(fixity, "messageDigestAlgorithm", one.digest_algorithm, "cryptographicHashFunctions")
    _under(fixity, "messageDigest", one.sha256)
    _under(traits, "size", str(one.size_bytes))
    _under(_under(_under(traits, "format"), "formatDesignation"), "formatName", one.format_name)
    if one.software:
        _under(_under(traits, "creatingApplication"), "creatingApplicationName", one.software)
    if one.original_name:
        _under(found, "originalName", one.original_name)
    if one.location:
        _identifier(_under(found, "storage"), "contentLocation", "URI", one.location)
    if one.derived_from:
        _relationship(found, "has source", one.derived_from, one.derived_by)
    for copy, event in one.has_copies:
        _relationship(found, "is source of", copy, event)
    for event_of in events:
        _identifier(found, "linkingEventIdentifier", _LOCAL, event_of.identifier)
    if rights is not None:
        _identifier(found, "linkingRightsStatementIdentifier", _LOCAL, rights.identifier)


def _relationship(found: Any, kind: str, other: str, event: str | None) -> None:
    link = _under(found, "relationship")
    _under(link, "relationshipType", "derivation")
    _under(link, "relationshipSubType", kind)
    _identifier(link, "relatedObjectIdentifier", _LOCAL, other)
    if event:
        _identifier(link, "relatedEventIdentifier", _LOCAL, event)


def _event(root: Any, event: PremisEvent) -> None:
    found = _under(root, "event")
    _identifier(found, "eventIdentifier", _LOCAL, event.identifier)
    _term(found, "eventType", event.label, "eventType")
    _under(found, "eventDateTime", event.at.isoformat(timespec="seconds"))
    _under(_under(found, "eventDetailInformation"), "eventDetail", event.detail)
    outcome = _under(found, "eventOutcomeInformation")
    _term(outcome, "eventOutcome", event.outcome, "eventOutcome")
    for note in event.notes:
        _under(_under(outcome, "eventOutcomeDetail"), "eventOutcomeDetailNote", note)
    agent = _identifier(found, "linkingAgentIdentifier", _LOCAL, event.agent)
    _under(agent, "linkingAgentRole", "executing program")
    for name, role in event.linked:
        link = _identifier(found, "linkingObjectIdentifier", _LOCAL, name)
        _under(link, "linkingObjectRole", role)


def _agent(root: Any, agent: PremisAgent) -> None:
    found = _under(root, "agent")
    _identifier(found, "agentIdentifier", _LOCAL, agent.identifier)
    _under(found, "agentName", agent.name)
    _term(found, "agentType", agent.kind, "agentType")
    if agent.version:
        _under(found, "agentVersion", agent.version)


def _rights(root: Any, rights: RightsStatement, objects: Iterable[str]) -> None:
    statement = _under(_under(root, "rights"), "rightsStatement")
    _identifier(statement, "rightsStatementIdentifier", _LOCAL, rights.identifier)
    _under(statement, "rightsBasis", rights.basis)
    if rights.basis == "copyright":
        part = _under(statement, "copyrightInformation")
        _under(part, "copyrightStatus", rights.status or "unknown")
        _under(part, "copyrightJurisdiction", rights.jurisdiction or "un")
        _note(part, "copyrightNote", rights.note)
    elif rights.basis == "license":
        part = _under(statement, "licenseInformation")
        _under(part, "licenseTerms", rights.terms or "")
        _note(part, "licenseNote", rights.note)
    elif rights.basis == "statute":
        part = _under(statement, "statuteInformation")
        _under(part, "statuteJurisdiction", rights.jurisdiction or "un")
        _under(part, "statuteCitation", rights.terms or "")
        _note(part, "statuteNote", rights.note)
    else:
        part = _under(statement, "otherRightsInformation")
        _under(part, "otherRightsBasis", rights.terms or rights.basis)
        _note(part, "otherRightsNote", rights.note)
    for act in rights.acts:
        _under(_under(statement, "rightsGranted"), "act", act)
    for name in objects:
        _identifier(statement, "linkingObjectIdentifier", _LOCAL, name)


def _note(part: Any, name: str, text: str | None) -> None:
    if text:
        _under(part, name, text)


def _term(parent: Any, name: str, text: str, vocabulary: str) -> None:
    """A label, with the address of its vocabulary's term where it is one of its labels."""
    found = _under(parent, name, text)
    code = _TERMS[vocabulary].get(text)
    if code is not None:
        found.set("authority", vocabulary)
        found.set("authorityURI", f"{_VOCABULARY}/{vocabulary}")
        found.set("valueURI", f"{_VOCABULARY}/{vocabulary}/{code}")


def _identifier(parent: Any, name: str, kind: str, value: str) -> Any:
    found = _under(parent, name)
    _under(found, f"{name}Type", kind)
    _under(found, f"{name}Value", value)
    return found


def _under(parent: Any, name: str, text: str | None = None) -> Any:
    child = etree.SubElement(parent, _name(name))
    if text is not None:
        child.text = xml_text(text)
    return child


def xml_text(text: str) -> str:
    """`text` without what XML cannot hold (control characters, halves of surrogate pairs): each becomes its escape in words."""
    return "".join(one if _may_stand(ord(one)) else f"\\x{ord(one):02x}" for one in text)


def _may_stand(code: int) -> bool:
    return code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def _name(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"
