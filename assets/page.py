"""The frame of a window's page, whatever pipeline it is of: rendered, checked, and linked to what lies beside it in the store.

A page needs nothing beside it and speaks of units as they stand, not of a run: no time, no attempt and no run id, so that equal
units give equal bytes. Names and reasons come from outside and are escaped; its own policy lets a browser load and run nothing.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from pathlib import Path
from typing import Any

from resources.errors import ErrorKind, UnitRejected

_KEY = re.compile(r'<meta name="tilewright:unit_key" content="([0-9a-f]+)">')


def render(template: str, **values: Any) -> str:
    """The page of a template that extends `page_frame.html.j2`: it needs `unit_key`, `window` (a batch window) and `counts`.

    `counts` are pairs of a `StateStyle` and a number. Filters: `visible`, `size`, `share`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("assets", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["visible"] = visible
    environment.filters["size"] = size_words
    environment.filters["share"] = lambda share: "none" if share is None else f"{100 * share:.1f} %"
    return environment.get_template(template).render(**values)


def check_page(path: Path, *, uri: str, unit_key: str) -> None:
    """Open a staged page again. Raises `UnitRejected` (INVALID_OUTPUT) unless it is whole and bears the key."""
    try:
        page = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnitRejected(
            f"the staged {uri} cannot be read back: {error}", kind=ErrorKind.INVALID_OUTPUT, unit_key=unit_key
        ) from error
    key = _KEY.search(page)
    if key is None or key[1] != unit_key or not page.endswith("</html>\n"):
        raise UnitRejected(
            f"the staged {uri}: found key {key and key[1]} and {len(page)} characters; "
            f"expected key {unit_key} and a page that ends with </html>",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=unit_key,
        )


def relative_href(target_uri: str, *, from_uri: str) -> str:
    """`target_uri` as seen from the folder of `from_uri`; both are relative to the store."""
    return posixpath.relpath(target_uri, posixpath.dirname(from_uri) or ".")


def visible(text: str) -> str:
    """`text` with characters that would hide or reorder it written as escapes, e.g. a line break or a right-to-left override."""
    return "".join(char if char == " " or unicodedata.category(char)[0] not in "CZ" else f"\\u{ord(char):04x}" for char in text)


def size_words(size_bytes: int) -> str:
    """A number of bytes as people say it."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
