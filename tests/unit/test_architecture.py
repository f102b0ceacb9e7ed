"""The rules of the layout: three floors, imports downwards only, few modules that know Dagster."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ("resources", "assets", "pipelines")
MAY_IMPORT_DAGSTER = (
    "pipelines/*",
    "resources/io_managers.py",
    "resources/dagster_*.py",
    "assets/*_assets.py",
    "assets/*_view.py",
)
EMPTY_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "misc",
    "manager",
    "handle",
    "process",
    "data",
    "info",
    "core",
    "base",
}
MODULE_LINES_MAX = 400

MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py") if "__pycache__" not in path.parts)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            names.update({prefix, *(f"{prefix}.{alias.name}" for alias in node.names)})
    return names


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is not a git clone, so there is no list of tracked files")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_go_down_only(path: Path) -> None:
    """pipelines may import assets and resources, assets only resources, resources neither; no import is relative."""
    floor = FLOORS.index(path.relative_to(ROOT).parts[0])
    above = {name for name in imported(path) if name.split(".")[0] in FLOORS[floor + 1 :]}
    assert not above, f"{relative(path)} imports from a floor above it: {sorted(above)}"
    assert not {name for name in imported(path) if name.startswith(".")}, f"{relative(path)} has a relative import"
    assert not {name for name in imported(path) if name.split(".")[0] in {"tests", "benchmarks"}}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_few_modules_know_dagster(path: Path) -> None:
    """Only the listed modules import dagster: workers and the command line start without it."""
    knows = {name for name in imported(path) if name.split(".")[0].startswith("dagster")}
    allowed = any(fnmatch(relative(path), pattern) for pattern in MAY_IMPORT_DAGSTER)
    assert allowed or not knows, f"{relative(path)} may not import {sorted(knows)}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_names_say_something(path: Path) -> None:
    """No module or package is called utils, helpers, common and the like."""
    assert not EMPTY_NAMES & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_modules_hold_one_idea(path: Path) -> None:
    """A module beyond 400 lines is to be split."""
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= MODULE_LINES_MAX, f"{relative(path)} has {lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_opens_with_what_belongs_there(path: Path) -> None:
    """Every module that holds code has a docstring."""
    tree = ast.parse(path.read_text("utf-8"))
    assert not tree.body or ast.get_docstring(tree), f"{relative(path)} has no docstring"


def _annotates_a_dagster_context(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            definition = re.search(
                r"\b(asset|multi_asset|graph_asset|asset_check|multi_asset_check|op|sensor|schedule)\b", decorators
            )
            first = node.args.args[0] if node.args.args else None
            if definition and first is not None and first.annotation is not None and "Context" in ast.unparse(first.annotation):
                return True
    return False


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_postponed_annotations_stay_away_from_dagster_contexts(path: Path) -> None:
    """Dagster rejects an annotated context in a module with `from __future__ import annotations`; all others have the import."""
    tree = ast.parse(path.read_text("utf-8"))
    postponed = "__future__.annotations" in imported(path)
    if _annotates_a_dagster_context(tree):
        assert not postponed, f"{relative(path)} annotates a Dagster context, so it must not postpone annotations"


@pytest.mark.parametrize("package", FLOORS)
def test_packages_are_this_repositorys(package: str) -> None:
    """`pipelines`, `assets` and `resources` are the ones here, not the registry's distributions of those names."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).resolve() == ROOT / package / "__init__.py"


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without `__init__.py` would be left out of, or shadowed in, an installed copy."""
    folders = {path.parent for path in MODULES}
    assert not [
        relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists() and folder.name != "versions"
    ]


# spelled in two halves, so that this file does not find itself
REGISTRY_WORDS = re.compile(
    "|".join(
        ("py" + r"pi\.", "python" + r"hosted", "registry\\.npm" + "js", "deb\\.deb" + "ian", "index-" + "url", "find-" + "links")
    ),
    re.I,
)


def test_no_registry_address_is_tracked() -> None:
    """Dependencies are names and versions; where they come from is each machine's to say."""
    found = []
    for path in tracked_files():
        if path.is_file() and path.stat().st_size < 2_000_000:
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{relative(path)}: {match.group()}" for match in REGISTRY_WORDS.finditer(text)]
    assert not found


def test_constraints_hold_exact_versions_only() -> None:
    """Each line of constraints.txt is `name==version`, and every dependency of pyproject.toml has its line."""
    lines = (ROOT / "constraints.txt").read_text().split()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    pinned = {canonical_name(line.split("==")[0]) for line in lines}
    project = (ROOT / "pyproject.toml").read_text()
    wanted = {canonical_name(name) for name in re.findall(r'"([A-Za-z0-9._-]+)(?:\[[a-z0-9,]+\])?(?:[<>=!]=?|~=)[^"]*"', project)}
    assert wanted - pinned <= {"setuptools"}


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
