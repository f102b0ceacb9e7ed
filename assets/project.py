"""A project opened from its configuration: what assets, sensors and the command line of every pipeline stand on."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from assets.outlook import Outlook
from assets.pipeline_shape import PipelineShape, shape_of
from assets.rebuilt import Rebuilt
from assets.survey import Survey
from resources.config import Config, load_config
from resources.config_digitization import DigitizationConfig
from resources.config_inspections import InspectionsConfig
from resources.config_scenes import ScenesConfig
from resources.engine import Engine
from resources.errors import ConfigurationError
from resources.opening import open_engine, open_leases, open_project_ledger, open_project_store
from resources.store import LocalStore
from resources.windows import WindowCalendar


class Project(ABC):
    """Configuration, ledger and leases at once, the rest when first asked for. One per process and file: see `open_project`.

    A pipeline says of itself what differs: what its source holds, and the partitions of a window.
    """

    worker_preload: ClassVar[tuple[str, ...]] = ()
    """Modules that worker processes import before their first unit."""

    config: Config

    def __init__(self, config: Config) -> None:
        self.config = config
        self.calendar = WindowCalendar(config.window)
        self.ledger = open_project_ledger(config)
        self.leases = open_leases(config, self.ledger)

    @property
    def shape(self) -> PipelineShape:
        """The names of what this pipeline is made of."""
        return shape_of(self.config)

    @abstractmethod
    def survey(self, *, now: datetime) -> Survey:
        """List the source. Raises `EnvironmentUnfit` when it is not there."""

    def partitions_of(self, window: str) -> Sequence[str]:
        """Partitions of the units of a window."""
        return [window]

    @abstractmethod
    def outlook(self, windows: Sequence[str], *, window: str | None) -> Outlook:
        """What would be planned now for `windows`; `window` names the only one, when one was asked for.

        Raises `EnvironmentUnfit` when the source is not there.
        """

    def tile_partition(self, name: str) -> str | None:  # noqa: ARG002 - a pipeline with tiles asks its grid
        """The tile part of a partition, from its own name or that of a tile in it; None when there is none."""
        return None

    def rebuild(self) -> Rebuilt:
        """Record as complete again the outputs that verify, for a ledger that was lost.

        Raises `ConfigurationError` where the ledger itself holds what is made: rows are in no other place than its backup.
        """
        raise ConfigurationError(
            f"the ledger of {self.shape.name} holds rows that are in no output: restore its backup, nothing can rebuild it"
        )

    def plan_again(self, windows: Iterable[str], *, run_id: str) -> None:  # noqa: B027 - most pipelines have nothing to do
        """Plan windows of which a rejected input may be used again; nothing to do where inputs are rejected unit by unit."""

    @property
    def store(self) -> LocalStore:
        """The store, checked to be the one the ledger remembers. Raises `EnvironmentUnfit` otherwise."""
        return open_project_store(self.config, self.ledger)

    def engine(self, *, inline: bool = False, preload: Sequence[str] | None = None) -> Engine:
        """An engine: worker processes for units, this process (`inline`) for the few of a window's outputs."""
        return open_engine(
            self.config,
            ledger=self.ledger,
            store=self.store,
            leases=self.leases,
            preload=self.worker_preload if preload is None else preload,
            inline=inline,
        )


_open: dict[tuple[Path, int], Project] = {}
_lock = threading.Lock()


def open_project(path: Path | str | None = None) -> Project:
    """The project of a configuration file, opened once per process and again when the file changes.

    Raises `ConfigurationError` (file, key, found, allowed) or `EnvironmentUnfit` when the ledger cannot be reached.
    """
    config = load_config(path)
    mark = (config.path, config.path.stat().st_mtime_ns)
    with _lock:
        if mark not in _open:
            _open[mark] = _open_as_configured(config)
        return _open[mark]


def _open_as_configured(config: Config) -> Project:
    # only the pipeline that is configured is imported: a lab of masters has no use for the libraries of tiles
    if isinstance(config, DigitizationConfig):
        from assets.digitization.project import DigitizationProject

        return DigitizationProject(config)
    if isinstance(config, InspectionsConfig):
        from assets.inspections.project import InspectionsProject

        return InspectionsProject(config)
    if isinstance(config, ScenesConfig):
        from assets.scenes_project import ScenesProject

        return ScenesProject(config)
    raise TypeError(f"no project has a configuration of {type(config).__name__}")
