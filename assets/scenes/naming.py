"""The pattern language of `source.patterns`: how a file name says scene, band and date.

`{scene}` names the scene, `{band}` the band, `{date:%Y%m%d}` the acquisition time (UTC), `{anything_else}` is matched and
forgotten. Without `{scene}` the scene is named by the match without its band part. A pattern without `/` is compared with the
file's name; one with `/` with the end of its path below the source folder. `{scene}` takes as much as it can, every other part as
little; `{path_row:6}` is exactly six characters. A name given twice must match the same text twice. Letter case counts, in
extensions too. `{{` and `}}` stand for braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from resources.errors import ConfigurationError

ALLOWED = (
    "{scene}, {band}, {date:%Y%m%d} with any of %Y %y %m %d %j %H %M %S %f, {any_other_name}, and {any_name:6} for 6 characters"
)

_DIRECTIVES = {
    "Y": r"[12]\d{3}",
    "y": r"\d{2}",
    "m": r"(?:0[1-9]|1[0-2])",
    "d": r"(?:0[1-9]|[12]\d|3[01])",
    "j": r"(?:[0-2]\d\d|3[0-5]\d|36[0-6])",
    "H": r"(?:[01]\d|2[0-3])",
    "M": r"[0-5]\d",
    "S": r"(?:[0-5]\d|6[01])",
    "f": r"\d{1,6}",
}
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])|([^{}]+)", re.DOTALL)
_PART_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NameMatch:
    """What a file's name says. `acquired` is UTC; `date_text` is what the name holds, also when it is no date."""

    scene_id: str
    band: str | None
    acquired: datetime | None
    date_text: str | None
    pattern: str


class NamePattern:
    """One pattern, compiled. Raises `ConfigurationError` naming the pattern, what was found and what is allowed."""

    def __init__(self, text: str, *, key: str = "source.patterns") -> None:
        self.text = text
        self._key = key
        self._date_format: str | None = None
        self._groups: dict[str, str] = {}
        self._regex = re.compile("".join(self._pieces()) + r"\Z", re.DOTALL)
        if text.startswith("/") or text.endswith("/") or "//" in text or not text:
            raise self._wrong("must be a relative path that ends in a file name")
        if any(part in (".", "..") for part in text.split("/")):
            raise self._wrong("'.' and '..' are no file names")

    @property
    def has_band(self) -> bool:
        """Files of this pattern hold one band each."""
        return "band" in self._groups

    @property
    def has_date(self) -> bool:
        """Names of this pattern say when the scene was acquired."""
        return self._date_format is not None

    @cached_property
    def _depth(self) -> int:
        return self.text.count("/") + 1

    def match(self, relative: str) -> NameMatch | None:
        """What the name of a file at `relative` (POSIX, below the source folder) says; None if it does not match."""
        tail = "/".join(relative.split("/")[-self._depth :])
        found = self._regex.match(tail)
        if found is None:
            return None
        date_text = found["date"] if self._date_format is not None else None
        return NameMatch(
            scene_id=self._scene_id(found, tail),
            band=found["band"] if self.has_band else None,
            acquired=_parse(date_text, self._date_format),
            date_text=date_text,
            pattern=self.text,
        )

    def _scene_id(self, found: re.Match[str], tail: str) -> str:
        if "scene" in self._groups:
            return found["scene"]
        stem = tail
        if self.has_band:
            start, end = found.span("band")
            stem = tail[:start].rstrip("_-. ") + tail[end:]
        folder, _, name = stem.rpartition("/")
        base = name.rsplit(".", 1)[0] if "." in name[1:] else name
        return f"{folder}/{base}" if folder else base

    def _pieces(self) -> Iterator[str]:
        for token in _TOKEN.finditer(self.text):
            part, stray, literal = token.groups()
            if stray is not None:
                raise self._wrong(f"the brace at position {token.start()} has no partner (write {{{{ or }}}} for a brace)")
            if part is not None:
                yield self._part(part)
            else:
                plain = literal if literal is not None else token.group()[0]
                if "*" in plain:
                    raise self._wrong("'*' is no wildcard here; write {anything}")
                yield re.escape(plain)

    def _part(self, part: str) -> str:
        name, colon, form = part.partition(":")
        if not _PART_NAME.fullmatch(name):
            raise self._wrong(f"found the part {{{part}}}, whose name is not letters, digits and '_'")
        if name == "date":
            return self._date(form)
        if colon and not re.fullmatch(r"[1-9]\d{0,2}", form):
            raise self._wrong(f"found the part {{{part}}}, whose width is no number from 1 to 999")
        if name in self._groups:
            return f"(?P={self._groups[name]})"
        group = name if name in ("scene", "band") else f"other{len(self._groups)}"
        self._groups[name] = group
        size = f"{{{form}}}" if colon else "+" if name == "scene" else "+?"
        return f"(?P<{group}>[^/]{size})"

    def _date(self, form: str) -> str:
        if not form:
            raise self._wrong("found {date} without a format; write for example {date:%Y%m%d}")
        if self._date_format is not None:
            raise self._wrong("found {date:...} twice")
        pieces, seen = [], []
        for directive, literal in re.findall(r"%(.?)|([^%]+)", form, re.DOTALL):
            if literal:
                pieces.append(re.escape(literal))
            elif directive == "%":
                pieces.append("%")
            elif directive in _DIRECTIVES and directive not in seen:
                seen.append(directive)
                pieces.append(_DIRECTIVES[directive])
            else:
                raise self._wrong(f"found '%{directive}' in {{date:{form}}}, which is unknown or given twice")
        if not {"Y", "y"} & set(seen) or not ({"m", "d"} <= set(seen) or "j" in seen):
            raise self._wrong(f"found {{date:{form}}}, which does not say year and day (%Y%m%d or %Y%j)")
        self._date_format = form
        return f"(?P<date>{''.join(pieces)})"

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._key}: pattern {self.text!r}: {what}; allowed: {ALLOWED}")


def _parse(text: str | None, form: str | None) -> datetime | None:
    if text is None or form is None:
        return None
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:  # 30 February matches the pattern, and is no date
        return None


def compile_patterns(texts: Sequence[str]) -> tuple[NamePattern, ...]:
    """All patterns, in the order in which they are tried. Raises `ConfigurationError`; not to be retried."""
    if not texts:
        raise ConfigurationError(f"source.patterns: found no pattern; allowed: at least one of {ALLOWED}")
    return tuple(NamePattern(text) for text in texts)


def first_match(patterns: Sequence[NamePattern], relative: str) -> NameMatch | None:
    """What the first pattern that matches says of the file at `relative`."""
    return next((found for pattern in patterns if (found := pattern.match(relative)) is not None), None)


class DoneMarker:
    """The companion file that says a scene is whole: `source.done_marker`, a file name around `{scene}`."""

    def __init__(self, text: str) -> None:
        if text.count("{scene}") != 1 or re.search(r"[{}/*]", text.replace("{scene}", "")) or text == "{scene}":
            raise ConfigurationError(
                f"source.done_marker: found {text!r}; allowed: one file name with {{scene}} in it, for example '{{scene}}.done'"
            )
        self._before, self._after = text.split("{scene}")

    def name_for(self, scene_id: str) -> str:
        """File name of the marker of that scene, beside its files."""
        return f"{self._before}{scene_id.rsplit('/', 1)[-1]}{self._after}"

    def is_marker(self, name: str) -> bool:
        """Whether a file of that name is some scene's marker."""
        return name.startswith(self._before) and name.endswith(self._after) and len(name) > len(self._before) + len(self._after)
