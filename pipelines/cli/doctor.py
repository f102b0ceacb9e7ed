"""`tilewright doctor`: whether a project can run here, asked before it has to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, load
from pipelines.cli.printing import print_json, print_table, show_bytes
from resources.errors import EnvironmentUnfit, ErrorKind, TilewrightError

if TYPE_CHECKING:
    from resources.config import Config

_DOCTOR_LEASE = 2**31 - 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What one question came to."""

    name: str
    is_well: bool
    detail: str


def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check configuration, source, what the pipeline needs, ledger, store, leases, alerts and Dagster; say what to mend.

    The filesystem's promises are proved by real files, removed again. Exit code 0 when all is well, 1 when something is not.
    """
    findings = list(examine(load(config)))
    if as_json:
        print_json({"is_well": all(finding.is_well for finding in findings), "findings": findings})
    else:
        print_table("", ["", "", ""], [["ok" if item.is_well else "NOT OK", item.name, item.detail] for item in findings])
    raise typer.Exit(ExitCode.COMPLETE if all(finding.is_well for finding in findings) else ExitCode.CANNOT_RUN)


def examine(config: Config) -> Iterator[Finding]:
    """All findings on a configuration that loads; one that fails stops none of the others."""
    questions: dict[str, Callable[[], str]] = {
        "configuration": lambda: f"{config.path}: {config.pipeline}",
        "windows": partial(_windows, config),
        "source": partial(_source, config),
        **pipeline_questions(config),
        "ledger": partial(_ledger, config),
        "store": partial(_store, config),
        "filesystem": partial(_filesystem, config),
        "leases": partial(_leases, config),
        "alerts": partial(_alerts, config),
        "Dagster": partial(_dagster, config),
    }
    for name, ask in questions.items():
        try:
            yield Finding(name, True, ask())
        except TilewrightError as error:
            yield Finding(name, False, error.message)
        except Exception as error:  # whatever a library raises here is the answer to the question
            yield Finding(name, False, f"{type(error).__name__}: {error}")


def pipeline_questions(config: Config) -> Mapping[str, Callable[[], str]]:
    """What one pipeline has to be asked beside what every project is."""
    from resources.config_digitization import DigitizationConfig
    from resources.config_inspections import InspectionsConfig
    from resources.config_scenes import ScenesConfig

    if isinstance(config, DigitizationConfig):
        from assets.digitization.questions import digitization_questions

        return digitization_questions(config)
    if isinstance(config, InspectionsConfig):
        from assets.inspections.questions import inspections_questions

        return inspections_questions(config)
    if isinstance(config, ScenesConfig):
        from assets.scenes_questions import scenes_questions

        return scenes_questions(config)
    return {}


def _windows(config: Config) -> str:
    from datetime import UTC, datetime

    from resources.windows import WindowCalendar

    return f"{sum(1 for _ in WindowCalendar(config.window).windows(datetime.now(UTC)))} so far, one each {config.window.every}"


def _source(config: Config) -> str:
    found = []
    for folder in config.input_dirs:
        if not folder.is_dir():
            raise EnvironmentUnfit(
                f"{folder}: no such folder; mount it, or name another in {config.source_key}", kind=ErrorKind.SOURCE_MISSING
            )
        if not os.access(folder, os.R_OK | os.X_OK):
            raise EnvironmentUnfit(f"{folder}: this account may not list it", kind=ErrorKind.SOURCE_MISSING)
        with os.scandir(folder) as entries:
            found.append(f"{folder}: readable, {sum(1 for _ in entries)} entries")
    return "; ".join(found) or "not a folder of this machine"


def _ledger(config: Config) -> str:
    from resources.opening import open_project_ledger

    ledger = open_project_ledger(config)
    ledger.letter_counts()
    kind = "PostgreSQL" if config.ledger_url.startswith("postgresql") else "SQLite"
    return f"{kind}, reachable and migrated"


def _store(config: Config) -> str:
    from resources.opening import open_project_ledger
    from resources.store import LocalStore

    remembered = open_project_ledger(config).remembered_store()
    store = LocalStore(config.store_dir)
    if remembered is None:
        return f"none yet; the first run makes it at {config.store_dir}"
    store.check(expected=remembered, min_free_bytes=config.store.min_free_mb * 1_000_000)
    return f"{config.store_dir}: the one the ledger remembers, writable, {show_bytes(store.free_bytes())} free"


def _filesystem(config: Config) -> str:
    from resources.filesystem_probe import probe_filesystem

    folder = config.store_dir
    while not folder.exists():
        folder = folder.parent
    probe_filesystem(folder)
    return f"{folder}: links and renames are exclusive and whole, files and folders can be made durable"


def _leases(config: Config) -> str:
    from resources.opening import open_leases, open_project_ledger

    leases = open_leases(config, open_project_ledger(config))
    try:
        with leases.hold({"doctor": _DOCTOR_LEASE}) as lease:
            if "doctor" not in lease.acquired and not lease.held_elsewhere:
                raise EnvironmentUnfit("a lease could not be taken", kind=ErrorKind.LEDGER_UNREACHABLE)
    finally:
        leases.close()
    return "can be taken and given back"


def _alerts(config: Config) -> str:
    if not config.alerts.urls:
        return "no channel is configured (alerts.urls): facts are kept in the outbox and seen in the UI only"
    import apprise

    wrong = [number for number, url in enumerate(config.alerts.urls, 1) if apprise.Apprise.instantiate(url) is None]
    if wrong:
        raise EnvironmentUnfit(
            f"alerts.urls: number {', '.join(map(str, wrong))} is not a URL that Apprise knows", kind=ErrorKind.BAD_CONFIGURATION
        )
    return f"{len(config.alerts.urls)} channels"


def _dagster(config: Config) -> str:
    from pipelines.cli.home import enter_home

    home = enter_home(config)
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        instance.get_runs_count()
    from pipelines.definitions import build_defs

    dg.Definitions.validate_loadable(build_defs())
    return f"instance at {home} opens; the project's definitions load"
