"""Bringing a window's manifest and plan up to date, once for each state of its source and its settings.

Called at the start of every run of a window, whoever launched it. With nothing changed it reads one marker and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from assets.project import Project
from assets.window_batch import WindowBatch
from resources.units import UnitOfWork


def bring_up_to_date(
    project: Project,
    window: str,
    *,
    source: str,
    settings: str,
    manifest: Callable[[], UnitOfWork],
    write_plan: Callable[[], None],
    run_id: str,
) -> bool:
    """Write manifest and plan unless they were made from this `source` and these `settings` (fingerprints).

    Returns whether the manifest is as its source is, as written just now. After a crash, or where two did this at once: the
    window counts as not planned, and the next run plans it again; the manifest is promoted whole or not at all.
    """
    ledger, shape = project.ledger, project.shape
    marker = ledger.marker(shape.plan_marker, window)
    if marker is not None and (marker.manifest_fingerprint, marker.config_fingerprint) == (source, settings):
        return False
    # two runs may plan one window at once, from listings of different age: only one that nobody crossed may say it is done
    begun = f"begun by {uuid4()}"
    ledger.set_marker(shape.plan_marker, window, manifest_fingerprint="", config_fingerprint=begun)
    batch = WindowBatch(shape.manifest, {window: [manifest()]}, ledger=ledger)
    report = project.engine(inline=True).run(batch, run_id=f"{run_id}/{shape.manifest}/{window}", requested_by=run_id)
    write_plan()
    ledger.confirm_marker(shape.plan_marker, window, begun=begun, manifest_fingerprint=source, config_fingerprint=settings)
    return bool(report.settled)
