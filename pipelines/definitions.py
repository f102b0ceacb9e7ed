"""The code location: everything that Dagster loads, assembled from one configuration.

`build_defs` makes a whole location, for tests with parts of their own; `defs` is what workspace.yaml names, made only when
Dagster asks for it, so that importing this module needs no configuration.
"""

import warnings
from pathlib import Path

import dagster as dg

from assets.project import Project, open_project
from pipelines.assembly import PipelineParts, assemble


def build_defs(
    config_path: Path | str | None = None,
    *,
    project: Project | None = None,
    autostart: bool | None = None,
    replay_schedule: bool | None = None,
    executor: dg.ExecutorDefinition = dg.in_process_executor,
) -> dg.Definitions:
    """The code location of a configuration; what is given takes the place of what the configuration says.

    Raises `ConfigurationError` (file, key, found, allowed), or `EnvironmentUnfit` when the ledger cannot be reached.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=dg.BetaWarning)
        found = project or open_project(config_path)
        return assemble(
            found,
            parts_of(found),
            autostart=found.config.autostart if autostart is None else autostart,
            replay_schedule=found.config.replay_schedule if replay_schedule is None else replay_schedule,
            executor=executor,
        )


def parts_of(project: Project) -> PipelineParts:
    """The parts of the pipeline that the project is of. Only that one is imported."""
    if project.config.pipeline == "digitization":
        from assets.digitization.project import DigitizationProject
        from pipelines.digitization import digitization_parts

        assert isinstance(project, DigitizationProject)
        return digitization_parts(project)
    if project.config.pipeline == "inspections":
        from assets.inspections.project import InspectionsProject
        from pipelines.inspections import inspections_parts

        assert isinstance(project, InspectionsProject)
        return inspections_parts(project)
    from assets.scenes_project import ScenesProject
    from pipelines.scenes import scenes_parts

    assert isinstance(project, ScenesProject)
    return scenes_parts(project)


@dg.definitions
def defs() -> dg.Definitions:
    """The location of the configuration that `TILEWRIGHT_CONFIG` names."""
    return build_defs()
