"""Names of files as they are kept: uris, POSIX paths below the source in which every byte that text cannot hold is escaped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stranger:
    """Something in the source folder that is no input: its uri and why it was left alone."""

    uri: str
    reason: str


def uri_of(relative: str) -> str:
    """The uri of a path relative to the source folder: percent-escapes `%`, what does not print and what is not UTF-8.

    One to one, so two files never share a uri; text that people write (spaces, quotes, accents, emoji) stays as it is.
    """
    if relative.isprintable() and "%" not in relative:
        return relative
    return "".join(
        char
        if char.isprintable() and char != "%"
        else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in relative
    )


def relative_of(uri: str) -> str:
    """The path that `uri_of` escaped."""
    raw = re.sub(rb"%([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode("ascii")), uri.encode("utf-8"))
    return raw.decode("utf-8", "surrogateescape")


def path_of(uri: str, source_dir: Path | str) -> Path:
    """The file of a uri in the source folder. Raises `ValueError` for a uri that would leave the folder; not to be retried."""
    relative = relative_of(uri)
    if relative.startswith("/") or ".." in relative.split("/") or "\0" in relative:
        raise ValueError(f"{uri!r} leaves the source folder")
    return Path(source_dir) / relative


def is_utf8(name: str) -> bool:
    """Whether a file name, as the system gives it, is text: a name in other bytes could not be written down."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
