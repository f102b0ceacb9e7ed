"""The main process's half of a write: promote, make durable, record, in groups. Closes the window between name and record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resources.crashpoints import reach
from resources.dispatch import StagedUnit
from resources.errors import EnvironmentUnfit, ErrorKind, IntegrityError, TilewrightError, Verdict
from resources.ledger import Ledger
from resources.outputs import Outputs
from resources.reconciliation import Discrepancy
from resources.staging import Staged, remove_staged
from resources.store import LocalStore
from resources.trees import digest_of_content, size_of
from resources.units import Completion, UnitOfWork, UnitState, as_made
from resources.verdicts import classify


@dataclass(slots=True)
class Promoter:
    """Promotes staged outputs of one run and records them, in that order."""

    outputs: Outputs
    run_id: str
    fences_hold: Callable[[], bool]
    discrepancies: list[Discrepancy]

    @property
    def ledger(self) -> Ledger:
        """Where outputs are recorded."""
        return self.outputs.ledger

    @property
    def store(self) -> LocalStore:
        """Where files and directories are."""
        return self.outputs.store

    def promote(self, staged: Sequence[StagedUnit]) -> int:
        """Promote and record a group; returns how many this run recorded.

        After a crash: promoted outputs without a record are adopted by the next run; staged ones are swept. A unit that another
        run has meanwhile taken over is neither overwritten nor recorded twice.
        """
        if not staged:
            return 0
        reach("promote.ready", self.run_id)
        if any(unit.replaces for unit, _, _ in staged) and not self.fences_hold():
            for _, _, (path, _) in staged:
                remove_staged(path)
            raise IntegrityError("the lease on these partitions was broken by hand; nothing was promoted")
        try:
            completions = [
                completion
                for unit, attempt, (path, result) in staged
                if (completion := self._promote_one(unit, attempt, path, result)) is not None
            ]
            reach("promote.linked", self.run_id)
            self.outputs.sync(completion.output_uri for completion in completions)
        except OSError as error:
            raise self.unfit(error, "an output could not be promoted") from error
        reach("promote.synced", self.run_id)
        reach("record.open", self.run_id)
        won = self.ledger.complete(self.run_id, completions)
        reach("record.committed", self.run_id)
        return len(won)

    def adopt(self, unit: UnitOfWork) -> bool:
        """Record an output that was promoted but never recorded. False, with the output set aside, when it does not verify."""
        found = self._verified(unit)
        if found is None:
            self._set_aside(unit, "does not verify and was never recorded")
            return False
        self.outputs.sync([unit.unit.output_uri])
        return unit.unit.key in self.ledger.adopt([found])

    def verifies(self, unit: UnitOfWork) -> bool:
        """Whether the output under the unit's final name is the unit's."""
        return self._verified(unit) is not None

    def _promote_one(self, unit: UnitOfWork, attempt: int, path: Path, result: Staged) -> Completion | None:
        uri, made = unit.unit.output_uri, result.made
        completion = Completion(
            unit.unit.key,
            attempt,
            uri,
            result.digest,
            result.size_bytes,
            made.metrics,
            result.duration_s,
            made.rows,
            made.revision,
        )
        if unit.replaces:
            self.store.replace(path, uri)
            return completion
        place = self.outputs.at(uri)
        if place.promote(path, uri):
            return completion
        existing = place.digest(uri)
        if existing == result.digest:
            remove_staged(path)
            return completion
        row = self.ledger.unit(unit.unit.key)
        if row is not None and row.state is UnitState.COMPLETE and row.output_digest == existing:
            remove_staged(path)
            return None
        other = self._verified(unit, attempt=attempt)
        if other is not None:
            remove_staged(path)
            return other
        self._set_aside(unit, "was in the way under the unit's final name and does not verify")
        return completion if place.promote(path, uri) else None

    def unfit(self, error: OSError, what: str) -> EnvironmentUnfit:
        """A name that cannot be given or made durable is the store's fault: nothing is recorded, nothing is tried again here."""
        self.store.check(expected=self.ledger.remembered_store())
        failure = classify(error)
        kind = failure.kind if failure.verdict is not Verdict.QUARANTINE else ErrorKind.STORE_UNWRITABLE
        return EnvironmentUnfit(f"{self.store.root}: {what}: {failure.message}", kind=kind)

    def _verified(self, unit: UnitOfWork, *, attempt: int = 0) -> Completion | None:
        uri = unit.unit.output_uri
        path = self.store.path(uri)
        try:
            unit.validate(path)
            made = as_made(unit.recover(path) if unit.recover is not None else {})
            digest, size = digest_of_content(path), size_of(path)
            return Completion(unit.unit.key, attempt, uri, digest, size, made.metrics, rows=made.rows, revision=made.revision)
        except (TilewrightError, OSError, ValueError, RuntimeError):
            return None

    def _set_aside(self, unit: UnitOfWork, why: str) -> None:
        aside = self.outputs.at(unit.unit.output_uri).set_aside(unit.unit.output_uri)
        self.discrepancies.append(
            Discrepancy(
                ErrorKind.OUTPUT_UNRECORDED,
                unit.unit.key,
                unit.unit.output_uri,
                f"{unit.unit.output_uri} {why}; kept as {aside.name}",
            )
        )
