"""The registry: which sites there are."""

from __future__ import annotations

import csv
import io
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from resources.errors import ConfigurationError
from resources.keys import digest_of


@dataclass(frozen=True, slots=True)
class Registry:
    """The sites that reports may be of. `digest` covers the sites alone: order, columns and spelling of the file do not count."""

    sites: frozenset[str]
    digest: str

    def __contains__(self, site: str) -> bool:
        return plain(site) in self.sites


def plain(name: str) -> str:
    """A site's name in one form: composed characters, single spaces. Letter case counts."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def load_registry(path: Path, *, column: str = "site") -> Registry:
    """Read a CSV file of sites. Raises `ConfigurationError` when it is not there, has no such column, or no site."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the registry of sites cannot be read ({error}); mend registry.file") from error
    head = next(iter(text.splitlines()), "")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=max((",", ";", "\t"), key=head.count))
    try:
        names = [name.strip().casefold() for name in next(rows, [])]
        if column.casefold() not in names:
            raise ConfigurationError(f"{path}: registry.column: found columns {', '.join(names) or 'none'}; needed {column!r}")
        at = names.index(column.casefold())
        sites = frozenset(plain(row[at]) for row in rows if len(row) > at and row[at].strip())
    except csv.Error as error:
        raise ConfigurationError(f"{path}: the registry of sites is no CSV: {error}") from error
    if not sites:
        # an empty registry would set every report aside
        raise ConfigurationError(f"{path}: the registry of sites names none; mend it, or leave registry.file out")
    return Registry(sites, digest_of(sorted(sites)))
