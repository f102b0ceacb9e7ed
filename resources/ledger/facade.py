"""The ledger: the durable record of plans, units, attempts, dead letters, requests and alerts."""

from __future__ import annotations

from resources.ledger.alerts import Alerts
from resources.ledger.attempts import Attempts
from resources.ledger.captures import Captures
from resources.ledger.completions import Completions
from resources.ledger.dead_letters import DeadLetters
from resources.ledger.files import Files
from resources.ledger.housekeeping import Housekeeping
from resources.ledger.partitions import Partitions
from resources.ledger.plan import Plan
from resources.ledger.requests import Requests
from resources.ledger.runs import Runs
from resources.ledger.takeover import TakeOver


class Ledger(
    Plan, Completions, Captures, Housekeeping, Attempts, TakeOver, Partitions, DeadLetters, Requests, Files, Alerts, Runs
):
    """Everything that can be asked of the ledger or written to it; each part is in a module of its own.

    Every method is one transaction, or several that each leave the ledger right. Any of them may raise `TransientError`
    (LOCK_CONTENTION; repeat the call) or `EnvironmentUnfit` (LEDGER_UNREACHABLE, DISK_FULL; do not).
    """
