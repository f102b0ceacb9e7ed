"""What checks find, as values: the same finding becomes the result of a check in a run, or an evaluation that a sensor reports.

Dagster skips the checks of a step that failed, and a killed run evaluates nothing. So what is compared is a function of ledger
and store alone, and who asks, a check or a sensor, decides only how it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg

from assets.survey import Survey
from pipelines.watched import ProjectLike, Watched
from resources.alerts import AlertFact, Severity, enqueue
from resources.amends import make_amends
from resources.dagster_tables import table
from resources.keys import digest_of
from resources.ledger import LetterStatus
from resources.reconciliation import Discrepancy, reconcile

UNITS_CHECK = "completed_units_match_outputs"
LETTERS_CHECK = "no_open_dead_letters"
OVERDUE_CHECK = "no_overdue_dead_letter"
ROWS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One evaluated check. `is_blocking` belongs to the check, not to this evaluation."""

    asset: dg.AssetKey
    check: str
    passed: bool
    description: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    is_blocking: bool = False

    @property
    def fingerprint(self) -> str:
        """Tells one state of affairs from another, so that a sensor says only what is new."""
        return digest_of([self.check, self.passed, self.description])

    def as_result(self) -> dg.AssetCheckResult:
        """For a check that runs in a run."""
        return dg.AssetCheckResult(
            passed=self.passed, description=self.description, metadata=dict(self.metadata), severity=self.severity
        )

    def as_evaluation(self) -> dg.AssetCheckEvaluation:
        """For a sensor, or for a run that is not of this asset."""
        return dg.AssetCheckEvaluation(
            asset_key=self.asset,
            check_name=self.check,
            passed=self.passed,
            description=self.description,
            metadata=dict(self.metadata),
            severity=self.severity,
            blocking=self.is_blocking,
        )


def units_match_outputs(
    project: ProjectLike, watched: Watched, partitions: Sequence[str], *, run_id: str, deep: bool = False
) -> Finding:
    """Compare planned units, units recorded complete and outputs that exist, for some partitions.

    Discrepancies return their units to PENDING and are put into the outbox of alerts, under the run's id. After a crash: what
    was not returned is found again.
    """
    names = list(dict.fromkeys(partitions))
    found = reconcile(project.ledger, project.store, asset=watched.asset, partitions=names, deep=deep)
    metadata: dict[str, Any] = {
        "planned": found.planned,
        "complete": found.complete,
        "outputs": found.outputs,
        "partitions": len(names),
        "run": run_id,
        "deep": deep,
    }
    if found.agrees:
        words = f"{found.complete} of {found.planned} planned units are complete, each with its own output"
        return _units_finding(watched, True, words, metadata)
    amends = make_amends(project.ledger, project.store, found.discrepancies)
    metadata["discrepancies"] = _discrepancy_table(found.discrepancies)
    metadata["returned_to_pending"] = amends.returned
    metadata["set_aside"] = list(amends.set_aside[:ROWS_SHOWN])
    first = found.discrepancies[0].message if found.discrepancies else "the counts differ"
    words = (
        f"{len(found.discrepancies)} discrepancies: {found.complete} units complete, {found.outputs} distinct outputs. "
        f"{first}. {amends.returned} units are PENDING again"
    )
    fact = AlertFact(
        fingerprint=f"check|{watched.asset}|{run_id}",
        title=f"{UNITS_CHECK} failed for {watched.asset}",
        body="\n".join([words, *(item.message for item in found.discrepancies[1:20])]),
        severity=Severity.FAILURE,
    )
    enqueue(project.ledger, [fact])
    return _units_finding(watched, False, words, metadata)


def _units_finding(watched: Watched, passed: bool, words: str, metadata: Mapping[str, Any]) -> Finding:
    return Finding(watched.key, UNITS_CHECK, passed, words, metadata, is_blocking=True)


def open_dead_letters(project: ProjectLike, watched: Watched) -> Finding:
    """Fails by name while dead letters are open, until each is replayed, superseded or dismissed."""
    counts = project.ledger.letter_counts()
    total = sum(counts.values())
    if not total:
        return Finding(watched.key, LETTERS_CHECK, True, "no dead letter is open", {"open": 0})
    rows = []
    for letter in project.ledger.dead_letters():
        rows.append(
            {
                "id": letter.id,
                "reason": letter.reason[:300],
                "name": letter.name[:200],
                "window": letter.window or "",
                "attempts": letter.attempts,
                "since": f"{letter.first_at:%Y-%m-%d %H:%M}",
            }
        )
        if len(rows) == ROWS_SHOWN:
            break
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    words = f"open dead letters: {total} ({kinds}); 'tilewright quarantine list' shows them"
    # few columns, the reason first: the page shows a table as wide as it is, and nobody scrolls sideways
    metadata = {"open": total, "dead_letters": table(rows, numbers=("id", "attempts"))}
    return Finding(watched.key, LETTERS_CHECK, False, words, metadata, dg.AssetCheckSeverity.WARN)


def overdue_dead_letters(project: ProjectLike, watched: Watched, *, deadline: timedelta) -> Finding:
    """Fails by name while a dead letter is open for longer than the deadline; a replay that failed does not start it anew."""
    now = project.ledger.clock()
    letters = list(project.ledger.dead_letters())
    since = {letter.subject_key: letter.first_at for letter in letters}
    if since:
        for before in project.ledger.dead_letters(status=LetterStatus.REPLAYED):
            if before.subject_key in since:
                since[before.subject_key] = min(since[before.subject_key], before.first_at)
    late = sorted(
        (letter for letter in letters if now - since[letter.subject_key] > deadline), key=lambda one: since[one.subject_key]
    )
    hours = deadline.total_seconds() / 3600
    metadata: dict[str, Any] = {"open": len(letters), "overdue": len(late), "deadline_hours": hours}
    if not late:
        words = f"no dead letter has been open for more than {hours:g} h"
        return Finding(watched.key, OVERDUE_CHECK, True, words, metadata)
    rows = [
        {
            "id": letter.id,
            "since": f"{since[letter.subject_key]:%Y-%m-%d %H:%M}",
            "kind": letter.kind,
            "reason": letter.reason[:300],
            "name": letter.name[:200],
        }
        for letter in late[:ROWS_SHOWN]
    ]
    metadata["overdue_letters"] = table(rows, numbers=("id",))
    words = (
        f"{len(late)} dead letters have been open for more than {hours:g} h, the oldest since {rows[0]['since']}; replay or "
        "dismiss them with 'tilewright quarantine'"
    )
    return Finding(watched.key, OVERDUE_CHECK, False, words, metadata)


def inputs_left_out(watched: Watched, survey: Survey, *, check: str, subject: str) -> Finding:
    """Fails by name while the source holds what no window takes: undated, early, late, incomplete, or nothing of the kind."""
    rows = [{"name": item.name[:200], "verdict": item.verdict, "reason": item.reason[:300]} for item in survey.left_out]
    metadata: dict[str, Any] = {f"{subject}s": survey.inputs, "accepted": survey.accepted, "left_out": len(rows)}
    if not rows:
        return Finding(watched.key, check, True, f"every file of the source belongs to a {subject} of a window", metadata)
    metadata["left_out_files"] = table(rows[:ROWS_SHOWN])
    counts = Counter(row["verdict"] for row in rows)
    words = f"{len(rows)} left out: " + ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    metadata["fingerprint"] = digest_of(rows)[:16]
    return Finding(watched.key, check, False, words, metadata, dg.AssetCheckSeverity.WARN)


def _discrepancy_table(discrepancies: Sequence[Discrepancy]) -> dg.TableMetadataValue:
    return table(
        [
            {"kind": item.kind.value, "unit": item.unit_key[:16], "output": item.output_uri, "message": item.message[:300]}
            for item in discrepancies[:ROWS_SHOWN]
        ]
    )
