"""Standing checks kept true in the UI: told again when they change, and when a materialization has hidden what was said.

Dagster shows a check as "not evaluated" once its asset was materialized after it; with partitions finished all day that would
be most of the time.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import dagster as dg

from pipelines.checks import Opened
from pipelines.findings import Finding, open_dead_letters, overdue_dead_letters
from pipelines.watched import Watched


@dataclass(frozen=True, slots=True)
class Telling:
    """What a sensor told last, as part of its cursor: check -> (fingerprint, when). `rest` is the sensor's own."""

    told: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    rest: str = ""

    @classmethod
    def parse(cls, cursor: str | None) -> "Telling":
        """What a cursor remembers."""
        if not cursor:
            return cls()
        values = json.loads(cursor)
        return cls({name: (found[0], found[1]) for name, found in values["told"].items()}, values["rest"])

    def dump(self) -> str:
        """The cursor's text."""
        return json.dumps({"told": self.told, "rest": self.rest}, sort_keys=True)

    def tell(
        self, instance: dg.DagsterInstance, findings: Sequence[Finding], *, rest: str = ""
    ) -> tuple[list[dg.AssetCheckEvaluation], "Telling"]:
        """Evaluations to report: of findings that changed, or that a later materialization hides."""
        told = dict(self.told)
        evaluations = []
        for finding in findings:
            name = f"{finding.asset.to_user_string()}:{finding.check}"
            before = told.get(name)
            if before is not None and before[0] == finding.fingerprint and not _is_hidden(instance, finding.asset, before[1]):
                continue
            evaluations.append(finding.as_evaluation())
            told[name] = (finding.fingerprint, time.time())
        return evaluations, Telling(told, rest)


def _is_hidden(instance: dg.DagsterInstance, asset: dg.AssetKey, since: float) -> bool:
    latest = instance.get_latest_materialization_event(asset)
    return latest is not None and latest.timestamp >= since


def letters_sensor(
    watched: Watched, opened: Opened, *, interval_s: int, deadline: timedelta | None = None, name: str = "open_dead_letters"
) -> dg.SensorDefinition:
    """Keeps `no_open_dead_letters`, and with a deadline `no_overdue_dead_letter`, true in the UI."""

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(watched.key),
        minimum_interval_seconds=interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Evaluates the standing checks on dead letters when they changed, or when a materialization has hidden them.",
    )
    def standing_checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        project = opened()
        findings = [open_dead_letters(project, watched)]
        if deadline is not None:
            findings.append(overdue_dead_letters(project, watched, deadline=deadline))
        evaluations, told = Telling.parse(context.cursor).tell(context.instance, findings)
        words = "; ".join(finding.description for finding in findings)
        return dg.SensorResult(asset_events=list(evaluations), cursor=told.dump(), skip_reason=words)

    return standing_checks
