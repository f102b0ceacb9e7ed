"""Named points at which tests and the demo make a process die, stop or fail, for real.

Unarmed (the default) a point costs one look at a tuple. Armed by `TILEWRIGHT_FAULTS`, rules split by `;`:

    point=action            every time the point is reached
    point=action*3          the first three times, over all processes
    point=action@2          not before the second time
    point~text=action       only for subjects (unit keys, tile names, scene ids) that contain `text`

Actions: `kill` (SIGKILL to oneself), `stop` (SIGSTOP), `transient`, `reject`, `unfit`, `crash` (an unclassified exception),
`exit` (`os._exit`). Counts are kept as files in `TILEWRIGHT_FAULTS_DIR`, so that a killed process has still counted.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from resources.errors import EnvironmentUnfit, ErrorKind, TransientError, UnitRejected

FAULTS_VARIABLE = "TILEWRIGHT_FAULTS"
COUNTS_VARIABLE = "TILEWRIGHT_FAULTS_DIR"

POINTS = (
    "attempt.recorded",
    "source.read",
    "stage.open",
    "stage.written",
    "stage.part",
    "stage.synced",
    "validate.done",
    "promote.ready",
    "promote.linked",
    "promote.synced",
    "record.open",
    "record.rows",
    "record.committed",
)

_RULE = re.compile(r"^(?P<point>[a-z.]+)(?:~(?P<text>[^=]+))?=(?P<action>[a-z]+)(?:\*(?P<times>\d+))?(?:@(?P<first>\d+))?$")


@dataclass(frozen=True, slots=True)
class _Fault:
    point: str
    text: str
    action: str
    times: int | None
    first: int


def _parse(text: str) -> tuple[_Fault, ...]:
    faults = []
    for rule in filter(None, (part.strip() for part in text.split(";"))):
        match = _RULE.match(rule)
        if match is None or match["point"] not in POINTS:
            raise ValueError(f"{FAULTS_VARIABLE}: cannot read {rule!r}; points are {', '.join(POINTS)}")
        faults.append(
            _Fault(
                match["point"],
                match["text"] or "",
                match["action"],
                int(match["times"]) if match["times"] else None,
                int(match["first"] or 1),
            )
        )
    return tuple(faults)


_armed = _parse(os.environ.get(FAULTS_VARIABLE, ""))


def reach(point: str, subject: str = "") -> None:
    """Do here what the armed fault for `point` says; nothing when none is armed."""
    for fault in _armed:
        if fault.point == point and fault.text in subject and _counts_in(fault):
            _act(fault, subject)


def _counts_in(fault: _Fault) -> bool:
    if fault.times is None and fault.first == 1:
        return True
    folder = Path(os.environ[COUNTS_VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            os.close(os.open(folder / f"{fault.point}-{fault.action}-{number}", os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            number += 1
    return number >= fault.first and (fault.times is None or number < fault.first + fault.times)


def _act(fault: _Fault, subject: str) -> None:
    message = f"fault put in on purpose at {fault.point} ({subject})"
    match fault.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            os._exit(17)
        case "transient":
            raise TransientError(message, kind=ErrorKind.SOURCE_UNAVAILABLE)
        case "reject":
            raise UnitRejected(message, kind=ErrorKind.CONTRACT_VIOLATED)
        case "unfit":
            raise EnvironmentUnfit(message)
        case "crash":
            raise RuntimeError(message)
        case _:
            raise ValueError(f"{FAULTS_VARIABLE}: no action {fault.action!r}")
