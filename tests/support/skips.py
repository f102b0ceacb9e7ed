"""A pytest plugin: in CI (`TILEWRIGHT_CI=1`) a skipped test fails the run unless its reason is on the list here.

A skip says what is missing on this machine; in CI nothing may be missing, save what a clone cannot have.
"""

from __future__ import annotations

import os
import re

import pytest

CI_VARIABLE = "TILEWRIGHT_CI"

ALLOWED = (
    # real files kept beside the repository, not in it
    re.compile(r"needs .*\bshared/data\b"),
    # the kernel's to give, not a package's
    re.compile(r"needs .*\bloop devices\b"),
    # permissions do not bind the superuser, and CI runs as root
    re.compile(r"\broot\b.*\b(ignores|reads|bypasses)\b"),
)


class UnexpectedSkips:
    """Collects skips and turns those that are not on the list into a failed run."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not is_allowed(reason):
            self.found.append((report.nodeid, reason))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.section("skips that CI does not allow", red=True)
            for nodeid, reason in self.found:
                terminalreporter.line(f"{nodeid}: {reason}")


def is_allowed(reason: str) -> bool:
    """Whether CI lets a test be skipped for `reason`."""
    return any(pattern.search(reason) for pattern in ALLOWED)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(CI_VARIABLE):
        config.pluginmanager.register(UnexpectedSkips(), "tilewright-unexpected-skips")
