"""Taking stock: what masters a window has now, its manifest, and the plan of its copies.

Called at the start of every run of a window, whoever launched it. A second call with nothing changed reads one listing and
writes nothing. The plan follows from captures, which never change, and from what was refused; so a master that is moved away,
rewritten or renamed after capture changes no plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.digitization.capturing import list_masters
from assets.digitization.copies import window_units
from assets.digitization.manifest import MANIFEST_VERSION, write_manifest
from assets.digitization.masters import Master, MasterListing, captured_master
from assets.digitization.shape import COPIES, MANIFEST
from assets.keyed_table import keyed_table_unit
from assets.survey import source_fingerprint
from assets.window_batch import WindowBatch
from assets.window_plan import bring_up_to_date
from resources.keys import digest_of
from resources.units import PartitionPlan, UnitOfWork

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject


@dataclass(frozen=True, slots=True)
class WindowStock:
    """A window's masters and whether its manifest was brought up to date just now."""

    window: str
    masters: tuple[Master, ...]
    is_manifest_made: bool


def take_stock(project: DigitizationProject, windows: Iterable[str], *, run_id: str) -> dict[str, WindowStock]:
    """List the source once, then bring manifest and plan of each window up to date.

    After a crash: the manifest is promoted whole or not at all, and the plan is written again.
    """
    listing = list_masters(project, now=project.ledger.clock())
    return {window: _refresh(project, window, listing, run_id=run_id) for window in dict.fromkeys(windows)}


def window_masters(project: DigitizationProject, window: str, listing: MasterListing) -> tuple[Master, ...]:
    """All masters of a window: those listed now, and those captured in it whose files are gone, as they were captured."""
    listed = {master.uri: master for master in listing.of_window(window)}
    captured = {capture.uri: captured_master(capture) for capture in project.ledger.captures(window=window)}
    return tuple((captured | listed)[uri] for uri in sorted(captured | listed))


def fingerprint(masters: Iterable[Master]) -> str:
    """Tells one state of a window's masters from another."""
    return source_fingerprint(master.identity for master in sorted(masters, key=lambda item: item.uri))


def settings_fingerprint(project: DigitizationProject) -> str:
    """What beside the masters decides a window's plan."""
    return digest_of(project.copy_settings.ingredients())


def _refresh(project: DigitizationProject, window: str, listing: MasterListing, *, run_id: str) -> WindowStock:
    masters = window_masters(project, window, listing)

    def write_plan() -> None:
        units = tuple(window_units(project, window, masters))
        project.ledger.write_plan(COPIES, [PartitionPlan(COPIES, window, window, units)])

    is_made = bring_up_to_date(
        project,
        window,
        source=fingerprint(listing.of_window(window)),
        settings=settings_fingerprint(project),
        manifest=lambda: manifest_work(window, masters),
        write_plan=write_plan,
        run_id=run_id,
    )
    return WindowStock(window, masters, is_made)


def manifest_work(window: str, masters: Sequence[Master]) -> UnitOfWork:
    """The unit of work that writes one window's manifest."""
    return keyed_table_unit(
        MANIFEST,
        f"{MANIFEST}/{window}.parquet",
        window=window,
        version=MANIFEST_VERSION,
        inputs=fingerprint(masters),
        rows=tuple(masters),
        write=write_manifest,
    )


def manifest_batch(project: DigitizationProject, windows: Iterable[str], listing: MasterListing) -> WindowBatch:
    """The manifests of some windows."""
    works = {window: [manifest_work(window, window_masters(project, window, listing))] for window in windows}
    return WindowBatch(MANIFEST, works, ledger=project.ledger)
