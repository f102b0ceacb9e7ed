"""What a pipeline is made of, by name: the assets of a window in their order, the jobs that make them, the words for them.

Names only. Sensors, checks and the command line go by these, so that none of them knows one pipeline from another.
"""

from __future__ import annotations

from dataclasses import dataclass

from resources.config import Config
from resources.config_digitization import DigitizationConfig
from resources.config_inspections import InspectionsConfig
from resources.config_scenes import ScenesConfig

MANIFEST_JOB = "window_manifest"
OUTPUTS_JOB = "window_outputs"


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """Names of a pipeline. `subject` is the word for one thing of the source: scene, master, report.

    `manifest` says what the source holds for a window; `units` is the asset whose units are the work; `outputs` are made of
    a window's units, in this order. `more` are assets with partitions of their own. `plan_marker` is the processed marker that
    holds the fingerprint of the source from which a window was planned.
    """

    name: str
    group: str
    subject: str
    manifest: str
    units: str
    units_job: str
    outputs: tuple[str, ...]
    more: tuple[str, ...] = ()
    has_tiles: bool = False

    @property
    def plan_marker(self) -> str:
        """Name of the processed marker of a window's plan."""
        return f"{self.units}.plan"

    @property
    def window_assets(self) -> tuple[str, ...]:
        """All assets of a window: the manifest, the units, what is made of them."""
        return (self.manifest, self.units, *self.outputs)

    @property
    def left_out_check(self) -> str:
        """Name of the standing check on what the source holds and no window takes."""
        return f"no_{self.subject}_left_out"

    @property
    def arrivals(self) -> str:
        """Name of the sensor on the source."""
        return f"{self.subject}_arrivals"


def shape_of(config: Config) -> PipelineShape:
    """The shape of the pipeline that a configuration is of. Imports nothing heavy: the command line starts with it."""
    if isinstance(config, DigitizationConfig):
        from assets.digitization.shape import digitization_shape

        return digitization_shape(config)
    if isinstance(config, InspectionsConfig):
        from assets.inspections.shape import inspections_shape

        return inspections_shape(config)
    if isinstance(config, ScenesConfig):
        from assets.scenes_shape import scenes_shape

        return scenes_shape(config)
    raise TypeError(f"no pipeline has a configuration of {type(config).__name__}")
