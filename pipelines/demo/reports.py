"""Makes the demo's project of inspections: reports of towers for a month, a table that lists them, sites, a configuration."""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipelines.demo.report_pdfs import report_pdf, scanned_pdf

MONTH = "2026-05"
SITES = tuple(f"TWR-{number:03}" for number in range(1, 16))
UNKNOWN_SITE = "TWR-999"
_REMARKS = ("corrosion at joint", "coating worn", "bolt loose", "lamp out")
CONFIGURATION = """pipeline = "inspections"
state = "state"
autostart = true

[window]
start = 2026-05-01
end = 2026-06-01
every = "month"

[source]
tables = "lists/{window}.csv"
settle_s = 0
recheck_minutes = 0

[registry]
file = "sites.csv"

[[fields]]
name = "inspected"
label = "date of inspection"
type = "date"
date_formats = ["YYYY-MM-DD", "D MMMM YYYY"]

[[fields]]
name = "height_m"
label = "height"
type = "number"
unit = "m"
units = { ft = 0.3048 }
min = 5
max = 400

[[fields]]
name = "condition"
label = "overall condition"
type = "choice"
choices = ["good", "fair", "poor"]

[findings]
columns = { element = "Element", severity = "Severity", remark = "Remark" }

[store]
uri = "outputs"
min_free_mb = 0

[retry]
base_s = 0.2
later_base_s = 1.0
later_cap_s = 5.0
breaker_units = 20

[sensors]
interval_s = 4

[executor]
workers = 2
"""


@dataclass(frozen=True, slots=True)
class DemoReports:
    """What was built. `number` reports are listed; `scanned` and `corrected` are files that change later."""

    config: Path
    lists: Path
    number: int
    scanned: Path
    corrected: Path
    stranger: Path
    corrected_uri: str

    def correct(self) -> str:
        """Deliver the scanned report with its text, and another with a corrected condition; the address of that one."""
        self.scanned.write_bytes(_report(SITES[3], condition="fair"))
        self.corrected.write_bytes(_report(SITES[0], condition="poor"))
        return self.corrected_uri


def build_reports(folder: Path, *, served: Path, url: str) -> DemoReports:
    """Write reports into `served`, which `url` gives out, and the project that lists them. Twice gives the same but for `url`."""
    lists = folder / "lists"
    for old in (lists, served):
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir(parents=True)
    listed: list[tuple[str, str, str]] = []

    def deliver(site: str, content: bytes, *, name: str = "") -> Path:
        path = served / (name or f"{site}.pdf")
        path.write_bytes(content)
        listed.append((site, f"{url}/{path.name}", MONTH))
        return path

    delivered = {site: deliver(site, _report(site)) for site in SITES}
    scanned, corrected = delivered[SITES[3]], delivered[SITES[0]]
    scanned.write_bytes(scanned_pdf(f"Site: {SITES[3]}   Period: {MONTH}"))
    stranger = deliver(UNKNOWN_SITE, _report(UNKNOWN_SITE))
    deliver(SITES[5], _report(SITES[5], condition="fair"), name=f"{SITES[5]}_again.pdf")
    _table(lists / f"{MONTH}.csv", ("site", "uri", "period"), listed)
    _table(folder / "sites.csv", ("site", "name"), [(site, f"Tower {site[-3:]}") for site in SITES])
    config = folder / "tilewright.toml"
    config.write_text(CONFIGURATION)
    return DemoReports(config, lists, len(listed), scanned, corrected, stranger, f"{url}/{corrected.name}")


def _table(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def _report(site: str, *, condition: str = "good") -> bytes:
    rng = random.Random(f"{site} {MONTH}")
    height = f"{rng.randrange(30, 120)}.5 m" if rng.random() < 0.7 else f"{rng.randrange(100, 390)} ft"
    findings = [
        {"Element": f"leg {rng.choice('ABCD')}", "Severity": str(rng.randrange(1, 5)), "Remark": rng.choice(_REMARKS)}
        for _ in range(rng.randrange(1, 5))
    ]
    facts = {
        "Site": site,
        "Period": MONTH,
        "Date of inspection": f"{MONTH}-{rng.randrange(1, 28):02}",
        "Height": height,
        "Overall condition": condition,
    }
    return report_pdf(facts, findings=findings, title="Tower inspection report")
