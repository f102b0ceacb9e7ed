"""The work of one report: take its content, read it, and say its record. Runs in a worker; everything it needs travels with it.

The content is scratch: it is taken for this attempt and gone after it. What stays is the record and, in the same transaction, the
version token under which its content was seen, so that neither can be there without the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets.fetch.fetching import FetchLimits, HostSlots, fetch, version_token
from assets.inspections.listing import ListedReport
from assets.inspections.planning import TABLE, true_revision
from assets.inspections.record import EXTRACTION_VERSION, ExtractionRules, extract_report
from resources.errors import ErrorKind, TransientError, UnitRejected
from resources.units import Made, Row


@dataclass(frozen=True, slots=True)
class ReportTask:
    """One report to be recorded. Survives pickling.

    `token` is the version token that it was planned by; `kept_digest` the content that its record must stay with, if any.
    """

    report: ListedReport
    rules: ExtractionRules
    limits: FetchLimits
    slots: HostSlots | None = None
    token: str | None = field(default=None, repr=False)
    kept_digest: str | None = None


def record_report(task: ReportTask, path: Path) -> Made:
    """Fetch a report into `path`, a scratch file, and read it. Returns its record and what was observed.

    Raises as `fetch` and `extract_report`. After a crash: `path` holds a part, which the sweep removes; nothing was recorded.
    """
    report = task.report
    taken = fetch(report.uri, path, limits=task.limits, slots=task.slots)
    if task.kept_digest is not None and taken.digest != task.kept_digest:
        raise UnitRejected(
            f"{report.shown} holds another content than its record, and same_uri = 'keep'; list the corrected report under an "
            "address of its own, or deliver the first one again",
            kind=ErrorKind.CONTRACT_VIOLATED,
        )
    try:
        found = extract_report(path, site=report.site, period=report.period, rules=task.rules)
    except UnitRejected as error:
        # what is read knows nothing of where it came from, and a person needs to
        raise UnitRejected(f"{report.shown}: {error.message}", kind=error.kind) from error
    revision = true_revision(report, digest=taken.digest, rules=task.rules.digest)
    values: dict[str, Any] = {
        "site": report.site,
        "period": report.period,
        "source_uri": report.shown,
        "content_digest": taken.digest,
        "page_count": found.page_count,
        "extraction_version": EXTRACTION_VERSION,
        "revision": revision,
        "fields": found.fields,
        "findings": found.findings,
    }
    rows = [Row(TABLE, values)]
    observed = _observed(task, taken.token)
    rows.append(Row("observations", {"uri": report.observed_as, "token": observed, "digest": taken.digest}))
    metrics = {
        "pages": found.page_count,
        "bytes": taken.size_bytes,
        "findings": len(found.findings),
        "warnings": list(found.warnings),
    }
    return Made(metrics=metrics, rows=tuple(rows), revision=revision)


def _observed(task: ReportTask, taken: str | None) -> str:
    """The token that the next plan will be told while the content stays as it is; empty where the source gives none.

    Some servers give a content another token when only its head is asked for. Plans ask for the head.
    """
    if taken == task.token:
        return taken or ""
    try:
        now = version_token(task.report.uri, limits=task.limits, slots=task.slots)
    except (TransientError, UnitRejected):
        return taken or ""
    # the same as before the content was taken: it is the head's own. Another: the content changed meanwhile
    return now or "" if now == task.token else taken or ""
