"""Addresses in one form, and the unit key of a report: the same document under two spellings of its address is one report.

RFC 3986, 6.2.2 and 6.2.3, for web addresses; nothing is asked of a network or a file system, so keys are made before any attempt.

- Web: scheme and host in lower case, the default port and the fragment dropped, dot segments removed, an empty path is `/`;
  unreserved characters stand as they are, others as `%XX` in upper case. The query keeps its order.
- Secrets do not enter a key, for they change where the document does not: user name and password are dropped, and so are the
  parameters of signed addresses (S3, Google, Azure, CloudFront) and those whose name can only be a credential's (`token`,
  `api_key`, ...). A name that may as well tell one document from another (`key`, `code`, `id`) is kept: show an address by
  `assets.fetch.uris.redacted`, never as it is here.
- Object stores: scheme in lower case and under one name; the object's name is taken byte by byte, as the store does.
- Local files: inside `root`, the project's folder, `file:` and the path from there, so that a project may be moved; outside,
  `file://` and the whole path. By the path alone: links are not followed.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from assets.fetch.uris import WEB, local_path, redacted, scheme_of, split
from resources.errors import ErrorKind, UnitRejected
from resources.keys import unit_key

KEY_VERSION = "1"

_RELATIVE = "file:"
_PORTS = {"http": 80, "https": 443}
_ONE_NAME = {"s3a": "s3", "gcs": "gs", "abfss": "abfs"}
# for s3 and gs nothing stands before the bucket; Azure writes the container there
_USERINFO_STORES = frozenset({"s3", "gs"})

_PARTS = re.compile(r"[^:/?#]+://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)  # RFC 3986, appendix B
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ALLOWED = _UNRESERVED | frozenset("!$&'()*+,;=:@/?")

# decoded, they would end the host and begin another part of the address: two documents would get one key
_NOT_IN_A_HOST = frozenset("/?#@[]%\\ ") | frozenset(map(chr, (*range(32), 127)))

_SECRETS = frozenset(
    re.findall(
        r"\S+",
        "token access_token auth_token id_token refresh_token sas_token security_token auth authorization "
        "password passwd pwd secret client_secret api_key apikey api-key access_key accesskey credential "
        "credentials session sessionid session_id jwt awsaccesskeyid googleaccessid",
    )
)
_SIGNED_PREFIXES = ("x-amz-", "x-goog-")
# parameters that belong to a signature where there is one, and may mean anything where there is none
_SIGNATURES: dict[str, frozenset[str]] = {
    "sig": frozenset(
        {
            "sig",
            "sv",
            "se",
            "st",
            "sp",
            "sr",
            "ss",
            "srt",
            "spr",
            "sip",
            "ske",
            "skt",
            "sks",
            "skv",
            "skoid",
            "sktid",
            "sdd",
            "saoid",
            "suoid",
            "scid",
            "si",
        }
    ),
    "signature": frozenset({"signature", "expires", "policy", "key-pair-id"}),
}


def canonical_uri(uri: str, *, root: Path | None = None) -> str:
    """The one form of an address; see the module. Applied twice it gives the same. `root`: the project's folder, absolute.

    Raises `UnitRejected` for what is no address or a scheme that reports are not taken from; a retry gives the same.
    """
    if uri.startswith(_RELATIVE) and not uri.startswith(f"{_RELATIVE}/"):
        return _local(os.fsdecode(unquote_to_bytes(os.fsencode(uri.removeprefix(_RELATIVE)))), root)
    scheme = scheme_of(uri)
    if scheme == "file":
        return _local(str(local_path(uri)), root)
    return _web(scheme, uri) if scheme in WEB else _stored(_ONE_NAME.get(scheme, scheme), uri)


def report_key(site: str, canonical: str) -> str:
    """The unit key of a report: sha256 of its site and its canonical address, in 64 hex. Content and period stay out."""
    destination = {"site": unicodedata.normalize("NFC", site.strip()), "uri": canonical}
    return unit_key(operation="inspection_record", version=KEY_VERSION, settings={}, destination=destination, inputs=[])


def _local(name: str, root: Path | None) -> str:
    path = os.path.normpath(os.path.join(root, name) if root is not None else name)
    if path.startswith("//"):
        path = path[1:]
    if root is not None and Path(path).is_relative_to(root):
        path = os.path.relpath(path, root)
    quoted = quote_from_bytes(os.fsencode(path), safe="/-._~")
    return f"file://{quoted}" if path.startswith("/") else f"{_RELATIVE}{quoted}"


def _web(scheme: str, uri: str) -> str:
    parts = split(uri)
    found = _PARTS.fullmatch(uri)
    if found is None or not parts.hostname:
        raise UnitRejected(f"{redacted(uri)} names no host; mend it where the report is listed", kind=ErrorKind.UNREADABLE)
    host = _host(parts.hostname)
    if _NOT_IN_A_HOST & set(host.removeprefix("[").removesuffix("]")):
        raise UnitRejected(
            f"{redacted(uri)} names the host {host!r}, which cannot be one; mend it where the report is listed",
            kind=ErrorKind.UNREADABLE,
        )
    port = "" if parts.port in (None, _PORTS[scheme]) else f":{parts.port}"
    query = "" if found[3] is None else _query(_encoded(found[3][1:]))
    return f"{scheme}://{host}{port}{_without_dots(_encoded(found[2])) or '/'}{query}"


def _stored(scheme: str, uri: str) -> str:
    found = _PARTS.fullmatch(uri)
    named = found[1] if found is not None else ""
    bucket = named.rpartition("@")[2] if scheme in _USERINFO_STORES else named
    if found is None or not bucket:
        raise UnitRejected(f"{redacted(uri)} names no bucket; mend it where the report is listed", kind=ErrorKind.UNREADABLE)
    return f"{scheme}://{bucket.lower()}{uri[found.end(1) :]}"


def _host(name: str) -> str:
    if ":" in name:
        return f"[{name.lower()}]"
    # a host's name has no percent-encoding that means anything else; what is not ASCII goes by its DNS name
    plain = unicodedata.normalize("NFC", unquote_to_bytes(name).decode("utf-8", "replace")).lower()
    try:
        return plain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return _encoded(plain)


def _encoded(text: str) -> str:
    """Percent-encoding in one form. A `%` that begins no encoding is itself encoded."""
    pieces, at = [], 0
    for found in _ENCODED.finditer(text):
        pieces.append(_quoted(text[at : found.start()]))
        char = chr(int(found[1], 16))
        pieces.append(char if char in _UNRESERVED else f"%{found[1].upper()}")
        at = found.end()
    pieces.append(_quoted(text[at:]))
    return "".join(pieces)


def _quoted(text: str) -> str:
    return "".join(
        char if char in _ALLOWED else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape")) for char in text
    )


def _without_dots(path: str) -> str:
    """RFC 3986, 5.2.4, for a path that is empty or begins with a slash."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "".join(f"/{segment}" for segment in kept)


def _query(query: str) -> str:
    parts = query.split("&")
    names = {part.partition("=")[0].lower() for part in parts}
    signed = frozenset[str]().union(*(_SIGNATURES[name] for name in names & set(_SIGNATURES)))
    kept = [part for part in parts if not _is_secret(part.partition("=")[0].lower(), signed)]
    return f"?{'&'.join(kept)}" if kept else ""


def _is_secret(name: str, signed: frozenset[str]) -> bool:
    return name in _SECRETS or name in signed or name.startswith(_SIGNED_PREFIXES)
