"""Addresses: their scheme, host and local path, and how they are shown without their secrets."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import SplitResult, quote_from_bytes, unquote_to_bytes, urlsplit, urlunsplit

from resources.errors import ErrorKind, UnitRejected
from resources.schemes import STORES

WEB = frozenset({"http", "https"})

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://|(?=/))")
_SIGNATURES = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature"})
_SECRET_NAME = re.compile(
    r"sig|signature|token|secret|password|passwd|pwd|pass|auth|authorization|credential|session|jwt|code|ticket|key|"
    r".*(?:signature|token|secret|password|credential|api_?key|access_?key.*|private_?key)|x-(?:amz|goog)-.*|.*[_-](?:key|auth|sig)"
)
# names tell most secrets; what is as long as a digest is taken for one under any name
_SECRET_LENGTH = 40


def scheme_of(uri: str) -> str:
    """The scheme in lower case; "file" for a plain path. Raises `UnitRejected` for a scheme that nothing is taken from."""
    found = _SCHEME.match(uri)
    scheme = found[1].lower() if found else "file"
    if scheme == "file" or scheme in WEB or scheme in STORES:
        return scheme
    known = ", ".join(["file", *sorted(WEB), *STORES])
    raise UnitRejected(
        f"nothing is taken from {scheme}: addresses ({redacted(uri)}); known are {known}", kind=ErrorKind.UNREADABLE
    )


def split(uri: str) -> SplitResult:
    """The parts of `uri`. Raises `UnitRejected` when it is not an address."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise UnitRejected(f"not an address: {redacted(uri)}; mend it where it is listed", kind=ErrorKind.UNREADABLE) from None
    return parts


def host_of(uri: str) -> str:
    """Who serves `uri`: host and port in lower case for web addresses, bucket for object stores, "" for local files."""
    scheme = scheme_of(uri)
    if scheme == "file":
        return ""
    parts = split(uri)
    host = (parts.hostname or "").lower()
    if scheme not in WEB:
        return f"{scheme}:{host}"
    return f"{host}:{parts.port or (443 if scheme == 'https' else 80)}"


def local_path(uri: str) -> Path:
    """The path of a plain path or file: address. Raises `UnitRejected` when the address names another machine, or is no path."""
    if _SCHEME.match(uri) is None:
        name = uri
    else:
        parts = split(uri)
        if parts.netloc not in ("", "localhost"):
            raise UnitRejected(
                f"{redacted(uri)} names a file of another machine; mount it, and give its path here", kind=ErrorKind.UNREADABLE
            )
        # names of files are bytes: what is no UTF-8 comes back as it was
        name = os.fsdecode(unquote_to_bytes(parts.path))
    if not name or "\0" in name:
        raise UnitRejected(f"not a path: {redacted(uri)!r}", kind=ErrorKind.UNREADABLE)
    return Path(name)


def is_signed(uri: str) -> bool:
    """Whether `uri` carries a signature: such addresses are made for one method, so that asking for the head alone is refused."""
    return any(name.lower() in _SIGNATURES for name, _ in _query(urlsplit(uri).query))


def is_inner(host: str | None) -> bool:
    """Whether `host` names this machine or its link (also where clouds keep a machine's credentials), by its literal."""
    if host is None or host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local or address.is_unspecified


def redacted(uri: str) -> str:
    """`uri` as it may be shown: without user name and password, without the values of query parameters that may be secret."""
    if _SCHEME.match(uri) is None:
        return _redacted_path(uri)
    try:
        parts = urlsplit(uri)
    except ValueError:
        return re.sub(r"//[^/@]*@", "//", uri.partition("?")[0])
    shown = "&".join(
        f"{name}={_shown(name, value)}" if value is not None else _shown(name, name) for name, value in _query(parts.query)
    )
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, shown, ""))


def shown_uri(uri: str, root: Path | None = None) -> str:
    """`uri` as a person knows it: a local file by its path, from `root` where it lies below it; any other redacted.

    Raises `UnitRejected` when it is no address.
    """
    if scheme_of(uri) != "file":
        return redacted(uri)
    path = local_path(uri)
    name = str(path.relative_to(root) if root is not None and path.is_relative_to(root) else path)
    # bytes that are no text, and signs that would break a line, as in an address
    return redacted("".join(char if char.isprintable() else quote_from_bytes(os.fsencode(char)) for char in name))


def _redacted_path(name: str) -> str:
    """A plain path, which may be an address whose scheme was forgotten. What only looks like a query tells files apart."""
    plain = re.sub(r"^//[^/@]*@", "//", name)
    at = re.search(r"[?#]", plain)
    if at is None:
        return plain
    pairs = [f"{key}={_shown(key, value)}" if value is not None else key for key, value in _query(plain[at.end() :])]
    return f"{plain[: at.end()]}{'&'.join(pairs)}"


def _query(query: str) -> list[tuple[str, str | None]]:
    found = []
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        if part:
            found.append((name, value if equals else None))
    return found


def _shown(name: str, value: str) -> str:
    is_secret = len(value) >= _SECRET_LENGTH or (value != name and _SECRET_NAME.fullmatch(name.lower()) is not None)
    return "***" if is_secret else value
