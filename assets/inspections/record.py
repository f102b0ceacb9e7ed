"""The record of one report: what its PDF says, checked against what the source lists and what is configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assets.inspections.extraction import PdfText, TextLimits, read_pdf
from assets.inspections.fields import find_fields, find_texts
from assets.inspections.findings import FindingsRule, find_findings
from assets.inspections.registry import Registry, load_registry, plain
from assets.inspections.rules import FieldRule, is_same_period
from resources.config_inspections import ENGLISH_MONTHS, InspectionsConfig
from resources.errors import ErrorKind, UnitRejected
from resources.keys import digest_of

EXTRACTION_VERSION = "1"
"""Raised when equal bytes may give another record; a test holds the records of fixed reports against it."""


@dataclass(frozen=True)
class ExtractionRules:
    """All that decides a record beside the report itself. Survives pickling. An empty label is not looked for."""

    fields: tuple[FieldRule, ...] = ()
    findings: FindingsRule | None = None
    site_label: str = r"site(?: id)?"
    period_label: str = r"(?:reporting |inspection )?period"
    months: tuple[str, ...] = ENGLISH_MONTHS
    limits: TextLimits = field(default_factory=TextLimits)
    registry: Registry | None = None

    @cached_property
    def digest(self) -> str:
        """Equal rules have equal digests, wherever they are computed."""
        settings = {
            "fields": [asdict(rule) for rule in self.fields],
            "findings": None if self.findings is None else asdict(self.findings),
            "labels": [self.site_label, self.period_label],
            "months": self.months,
            "limits": asdict(self.limits),
            "registry": None if self.registry is None else self.registry.digest,
        }
        return digest_of(settings)


@dataclass(frozen=True, slots=True)
class ExtractedReport:
    """What a report says, as plain JSON values. A date is written YYYY-MM-DD, a number is in its field's unit."""

    page_count: int
    fields: dict[str, Any]
    findings: list[dict[str, Any]]
    text_chars: int
    warnings: tuple[str, ...] = ()


def rules_of(config: InspectionsConfig) -> ExtractionRules:
    """The rules as configured, with the registry as it is now. Raises `ConfigurationError` when that cannot be read."""
    extraction, findings, file = config.extraction, config.findings, config.registry_file
    return ExtractionRules(
        fields=tuple(
            FieldRule(
                name=one.name,
                label=one.label,
                type=one.type,
                is_required=one.required,
                date_formats=one.date_formats,
                decimal=one.decimal,
                unit=one.unit,
                units=tuple(sorted(one.units.items())),
                least=one.min,
                most=one.max,
                choices=one.choices,
            )
            for one in config.fields
        ),
        findings=None if findings is None else FindingsRule(tuple(findings.columns.items()), findings.required),
        site_label=extraction.site_label,
        period_label=extraction.period_label,
        months=extraction.months,
        limits=TextLimits(
            pages_max=extraction.max_pages,
            chars_max=extraction.max_chars,
            stream_bytes_max=extraction.max_stream_mb << 20,
            text_chars_min=extraction.min_text_chars,
        ),
        registry=None if file is None else load_registry(file, column=config.registry.column),
    )


def extract_report(path: Path, *, site: str, period: str, rules: ExtractionRules) -> ExtractedReport:
    """Read the report in the file `path`, which is listed for `site` and `period`. Equal bytes and rules give equal values.

    Raises `UnitRejected` by kind, as `read_pdf` and `find_fields`, and UNKNOWN_SITE, SITE_MISMATCH, PERIOD_MISMATCH; a retry
    gives the same. Writes nothing.
    """
    if rules.registry is not None and site not in rules.registry:
        raise UnitRejected(
            f"the registry has no site {site!r}; add it there, or mend the list of reports", kind=ErrorKind.UNKNOWN_SITE
        )
    text = read_pdf(path, rules.limits)
    skip: frozenset[int] = frozenset()
    rows: tuple[Mapping[str, str], ...] = ()
    warnings = []
    if rules.findings is not None:
        table = find_findings(text.lines, rules.findings)
        skip, rows = table.lines, table.rows
        if not table.is_there:
            headers = ", ".join(header for _, header in rules.findings.columns)
            if rules.findings.is_required:
                raise UnitRejected(f"the report lacks a table with the headers {headers}", kind=ErrorKind.MISSING_FIELD)
            warnings.append(f"no table of findings with the headers {headers}")
    _check_site(text, site, rules, skip)
    _check_period(text, period, rules, skip)
    fields = find_fields(text.lines, rules.fields, skip=skip, months=rules.months)
    return ExtractedReport(
        page_count=text.page_count,
        fields=dict(fields),
        findings=[dict(row) for row in rows],
        text_chars=text.text_chars,
        warnings=tuple(warnings),
    )


def _check_site(text: PdfText, site: str, rules: ExtractionRules, skip: frozenset[int]) -> None:
    found = _said(text, "site", rules.site_label, skip)
    others = [one for one in found if plain(one).casefold() != plain(site).casefold()]
    if others:
        raise UnitRejected(
            f"the report says site {others[0][:200]!r}, and is listed for {site!r}; mend the list, or have the right one "
            "delivered",
            kind=ErrorKind.SITE_MISMATCH,
        )


def _check_period(text: PdfText, period: str, rules: ExtractionRules, skip: frozenset[int]) -> None:
    found = _said(text, "period", rules.period_label, skip)
    others = [one for one in found if not is_same_period(one, period, months=rules.months)]
    if others:
        raise UnitRejected(
            f"the report says period {others[0][:200]!r}, and is listed for {period!r}; mend the list, or have the right one "
            "delivered",
            kind=ErrorKind.PERIOD_MISMATCH,
        )


def _said(text: PdfText, what: str, label: str, skip: frozenset[int]) -> list[str]:
    if not label:
        return []
    found = list(find_texts(text.lines, label, skip=skip))
    if not found:
        raise UnitRejected(
            f"the report does not say its {what}: no text behind the label {label!r}; mend extraction.{what}_label, or empty it",
            kind=ErrorKind.MISSING_FIELD,
        )
    return found
