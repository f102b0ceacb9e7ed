"""The documents say what is really there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from pipelines.cli.application import app
from resources.config_keys import as_markdown
from resources.errors import ErrorKind
from resources.units import UnitState
from tests.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_table_of_keys_is_the_models() -> None:
    """docs/configuration.md ends with what `tilewright keys --markdown` prints; run that again after changing a key."""
    assert (ROOT / "docs" / "configuration.md").read_text().split("<!-- keys -->\n")[1] == as_markdown()


def test_every_key_is_explained() -> None:
    """No key is left without a meaning."""
    assert [line for line in as_markdown().splitlines() if re.search(r"\|\s*\|$", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links and named files of the documents exist."""
    text = page.read_text()
    links = {
        link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link and not link.startswith("#")
    }
    named = set(
        re.findall(r"`((?:assets|resources|pipelines|tests|docs|deploy|benchmarks)/[\w./-]+\.(?:py|md|yaml|toml))`", text)
    )
    missing = [link for link in sorted(links) if not (page.parent / link).exists()]
    missing += [name for name in sorted(named) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_documents_exist(page: Path) -> None:
    """A `tilewright` command that a document shows is one that there is, with the options it shows."""
    groups = get_command(app).commands
    for line in re.findall(r"\btilewright ([a-z][a-z -]*[a-z](?: --[a-z-]+| [A-Z0-9'\w.-]+)*)", page.read_text()):
        words = line.split()
        if words[0] not in groups:
            continue_reading = words[0] in {"is", "and", "on", "itself"}
            assert continue_reading, f"{page.name}: no command {words[0]!r} in 'tilewright {line}'"
            continue
        command = groups[words[0]]
        if hasattr(command, "commands") and len(words) > 1 and not words[1].startswith("-"):
            assert words[1] in command.commands, f"{page.name}: no command in 'tilewright {line}'"
            command = command.commands[words[1]]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= known, f"{page.name}: 'tilewright {line}'"


def test_make_targets_in_documents_exist() -> None:
    """Each `make` target that a document shows is in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    # in code: prose may begin a line with "make it"
    pattern = re.compile(r"`make ([a-z-]+)|^ {4}make ([a-z-]+)", re.MULTILINE)
    shown = {target for page in PAGES for found in pattern.findall(page.read_text()) for target in found}
    assert shown - {""} <= targets


@pytest.mark.parametrize("word", [*(state.value for state in UnitState), *(kind.value for kind in ErrorKind)])
def test_every_state_and_error_kind_is_in_the_documents(word: str) -> None:
    """A person who meets a state or an error kind finds it explained."""
    assert any(f"`{word}`" in page.read_text() or f" {word}" in page.read_text() for page in PAGES)


def test_every_mutant_is_on_the_page_of_invariants() -> None:
    """docs/invariants.md names each line that is broken on purpose and the test that must fail, for all fourteen invariants."""
    page = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
    missing = [mutant.breaks for mutant in MUTANTS if f"| {mutant.breaks} | `{mutant.file}` |" not in page]
    assert missing == []
    assert {mutant.invariant for mutant in MUTANTS} == set(range(1, 15))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks)
def test_the_line_of_every_mutant_stands_once(mutant: Mutant) -> None:
    """A line that moved is named again at once, and not when `make mutants` is run next."""
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert (ROOT / mutant.test.partition("::")[0]).is_file()
