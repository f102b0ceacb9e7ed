"""What a source lists: links of an index page, files of a folder, objects under a prefix."""

from __future__ import annotations

import os
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from assets.fetch.files import object_store, store_errors
from assets.fetch.model import FetchLimits
from assets.fetch.uris import WEB, host_of, local_path, redacted, scheme_of
from resources.errors import EnvironmentUnfit, ErrorKind, UnitRejected


def list_index(uri: str, *, limits: FetchLimits | None = None) -> list[str]:
    """Absolute addresses, sorted, of the files that `uri` lists.

    A web address is an HTML page whose links are read: those on the same host and scheme, of that page alone. A folder or
    prefix is read with all below it. Hidden names and addresses that end with a slash are left out. Raises `EnvironmentUnfit`
    when there is nothing to list (it is the source that is missing), `TransientError` when it does not answer.
    """
    bounds = limits or FetchLimits()
    scheme = scheme_of(uri)
    try:
        if scheme == "file":
            found = _files(uri)
        elif scheme in WEB:
            found = _links(uri, bounds)
        else:
            found = _objects(uri)
    except UnitRejected as error:
        raise EnvironmentUnfit(f"nothing to list: {error.message}", kind=ErrorKind.SOURCE_MISSING) from error
    return sorted({one for one in found if (name := file_name(one)) and not name.startswith(".")})


def file_name(uri: str) -> str:
    """The name of the file at the end of an address, decoded; empty where a slash ends it."""
    return unquote(urlsplit(uri).path.rpartition("/")[2])


def _files(uri: str) -> list[str]:
    top = local_path(uri).absolute()
    found: list[str] = []
    try:
        for folder, below, names in os.walk(top, onerror=_raise):
            below[:] = [name for name in below if not name.startswith(".")]
            found.extend(Path(folder, name).as_uri() for name in names)
    except OSError as error:
        raise EnvironmentUnfit(
            f"the folder {top} cannot be listed ({error}); mount it or mend its permissions", kind=ErrorKind.SOURCE_MISSING
        ) from error
    return found


def _raise(error: OSError) -> None:
    raise error


def _objects(uri: str) -> list[str]:
    with store_errors(uri):
        store = object_store(uri)
        return [f"{scheme_of(uri)}://{key.lstrip('/')}" for key in store.find(uri)]


def _links(uri: str, limits: FetchLimits) -> list[str]:
    from assets.fetch.http import web_session

    with tempfile.TemporaryDirectory(prefix="tilewright-index-") as scratch, web_session(limits) as web:
        page = Path(scratch, "index.html")
        taken = web.take(uri, page)
        reader = _Links()
        reader.feed(page.read_bytes().decode("utf-8", "replace"))
        reader.close()
    if taken.content_type is not None and "html" not in taken.content_type.lower():
        raise UnitRejected(f"{redacted(uri)} is {taken.content_type}, not a page with links", kind=ErrorKind.UNREADABLE)
    # what the links are relative to is where the page came from; a user name that the address carried goes with them
    start = uri if taken.uri_final == redacted(uri) else taken.uri_final
    start = urljoin(start, reader.start) if reader.start else start
    return [link for href in reader.hrefs if (link := _absolute(start, href)) is not None and _is_same_place(link, uri)]


def _absolute(start: str, href: str) -> str | None:
    try:
        return urldefrag(urljoin(start, href.strip())).url
    except ValueError:
        return None


def _is_same_place(link: str, uri: str) -> bool:
    try:
        return urlsplit(link).scheme == urlsplit(uri).scheme.lower() and host_of(link) == host_of(uri)
    except UnitRejected:
        return False


class _Links(HTMLParser):
    """Collects the addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hrefs: list[str] = []
        self.start: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if href and tag == "a":
            self.hrefs.append(href)
        elif href and tag == "base" and self.start is None:
            self.start = href
