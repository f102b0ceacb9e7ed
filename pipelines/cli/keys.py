"""`tilewright keys`: everything that can be configured."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.options import JsonOption, refuse
from pipelines.cli.printing import print_json_rows, print_table


def keys(
    section: Annotated[str | None, typer.Argument(help="Only this section, e.g. products.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the tables of docs/configuration.md.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List every configuration key with what it takes, its default and its meaning."""
    from resources.config_keys import as_markdown, configuration_keys

    if markdown:
        typer.echo(as_markdown(), nl=False)
        return
    every = list(configuration_keys())
    sections = {key.section for key in every} - {""}
    if section is not None and not any(name == section or name.startswith(f"{section}.") for name in sections):
        refuse("SECTION", section, ", ".join(sorted(sections)))
    found = [key for key in every if section is None or key.section == section or key.section.startswith(f"{section}.")]
    if as_json:
        print_json_rows(found)
    else:
        rows = [
            [key.pipeline or "all", ".".join(filter(None, [key.section, key.name])), key.allowed, key.default, key.meaning]
            for key in found
        ]
        print_table("", ["pipeline", "key", "takes", "default", "meaning"], rows)
