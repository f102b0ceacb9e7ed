"""One unit at a time through the executor, to look at what comes back."""

from __future__ import annotations

from resources.executor import Fate, LocalExecutor
from resources.staging import Staged, StageTask
from resources.verdicts import Failure


def answer_of(executor: LocalExecutor, task: StageTask) -> Staged | Failure:
    """What a worker says of a unit. Fails when it died with it or was ended."""
    executor.submit([task])
    outcomes = executor.wait(60)
    while not outcomes:
        outcomes = executor.wait(60)
    (outcome,) = outcomes
    assert outcome.fate is Fate.RETURNED, (task, outcome.detail)
    assert outcome.result is not None
    return outcome.result
