"""A child process that executes Dagster runs in turn, for `tilewright run`: requests are JSON lines on standard input.

Runs are ordinary runs of the project's Dagster instance: the UI shows them, sensors see their end. They are executed in this
process, so that nothing goes on writing when it is killed, and it dies with the command that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterable
from typing import Any

import dagster as dg

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"
_PR_SET_PDEATHSIG = 1


def execute(definitions: dg.Definitions, instance: dg.DagsterInstance, request: dict[str, Any]) -> bool:
    """Execute one run; True when it succeeded. Failure of a run is recorded by Dagster and the ledger, not raised."""
    job = definitions.resolve_job_def(request["job"])
    tags = {_RANGE_START: request["start"], _RANGE_END: request["end"], **request.get("tags", {})}
    result = job.execute_in_process(
        instance=instance,
        run_id=request["run_id"],
        tags=tags,
        raise_on_error=False,
    )
    return result.success


def main(lines: Iterable[str]) -> None:
    """Execute the requested runs in turn and say after each, on standard output, how it ended."""
    # all at once: whoever asks for hundreds of runs must not wait in the pipe until most of them are done
    requests = [json.loads(line) for line in lines]
    from pipelines.definitions import build_defs

    definitions = build_defs()
    with dg.DagsterInstance.get() as instance:
        for request in requests:
            succeeded = execute(definitions, instance, request)
            sys.stdout.write(json.dumps({"run_id": request["run_id"], "succeeded": succeeded}) + "\n")
            sys.stdout.flush()


def die_with_parent() -> None:
    """Have the system kill this process when the one that started it is gone, however that one ended."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent()
    main(sys.stdin)
