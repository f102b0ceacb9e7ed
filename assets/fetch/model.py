"""The values of fetching: what is allowed of a source, and what was taken from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much, how long and from where. Times in seconds; survives pickling, so that workers get it with their unit.

    `connect_s` bounds name lookup, connection and TLS together, `read_s` the silence between two reads, `total_s` everything
    from the first request to the last byte, redirects included: a source that drips stays within `read_s` for ever. `folders`:
    local folders that content may come from; a local path outside them is refused. None given: any local path. `root`: the
    project's folder, from which local addresses are shown.
    """

    max_bytes: int = 200_000_000
    connect_s: float = 10.0
    read_s: float = 30.0
    total_s: float = 300.0
    redirects_max: int = 5
    retry_after_max_s: float = 86_400.0
    slot_wait_s: float = 300.0
    folders: tuple[Path, ...] = ()
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """Content that is now in the target file.

    `uri_final` is where it came from after redirects, without secrets; `digest` is sha256 in hex and `size_bytes` the length of
    the file as written; `token` is the version token under which it was seen (None: the source gives none); `content_type` is
    as the source says.
    """

    uri_final: str
    digest: str
    size_bytes: int
    token: str | None
    content_type: str | None
