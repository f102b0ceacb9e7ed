"""What `tilewright doctor` asks of a project of inspections: its reports, its rules, its places for hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from resources.config_inspections import InspectionsConfig
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError
from resources.windows import WindowCalendar


def inspections_questions(config: InspectionsConfig) -> Mapping[str, Callable[[], str]]:
    """Name -> question; each answers in words or raises what is wrong."""
    return {
        "reports": partial(_reports, config),
        "rules": partial(_rules, config),
        "places at hosts": partial(_places, config),
    }


def _reports(config: InspectionsConfig) -> str:
    from assets.inspections.fetch_limits import limits_of
    from assets.inspections.listing import list_reports

    calendar = WindowCalendar(config.window)
    try:
        found = list_reports(config, calendar, homes={}, limits=limits_of(config), now=datetime.now(UTC))
    except TransientError as error:
        raise EnvironmentUnfit(f"the list of reports cannot be had: {error.message}", kind=error.kind) from error
    windows = {report.window for report in found.reports}
    return f"{len(found.reports)} reports in {len(windows)} windows are listed; {len(found.left_out)} rows or files are left out"


def _rules(config: InspectionsConfig) -> str:
    from assets.inspections.record import rules_of

    digest = rules_of(config).digest
    where = "any site is taken" if config.registry_file is None else f"sites are those of {config.registry_file}"
    return f"{len(config.fields)} fields are read from a report, {where}; rules {digest[:12]}..."


def _places(config: InspectionsConfig) -> str:
    from assets.fetch.host_slots import HostSlots

    folder = config.state_dir / "host-slots"
    try:
        with HostSlots(folder, config.fetch.per_host).take("doctor", 1.0):
            pass
    except TransientError as error:
        raise EnvironmentUnfit(error.message, kind=ErrorKind.STORE_UNWRITABLE) from error
    return f"at most {config.fetch.per_host} requests at once to one host, kept in {folder}"
