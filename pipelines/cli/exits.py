"""Exit codes, for scripts and for the help of each command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's end says."""

    COMPLETE = 0
    CANNOT_RUN = 1
    USAGE = 2
    INCOMPLETE = 3


EPILOG = "Exit codes: 0 all complete, or done; 3 something is incomplete, quarantined or disagrees; 1 cannot run; 2 wrong usage."
