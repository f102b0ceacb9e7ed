"""Dagster's home of a project: where it is, what is in it, and the environment that its processes need."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from resources.config import Config

ROOT = Path(__file__).parents[2]
WORKSPACE = ROOT / "workspace.yaml"
LOCAL_SETTINGS = ROOT / "dagster.yaml"
POSTGRES_SETTINGS = ROOT / "deploy" / "postgres" / "dagster.yaml"


def prepare_home(config: Config, *, settings: Path = LOCAL_SETTINGS) -> Path:
    """Make the project's Dagster home with its `dagster.yaml`; one that is there stays as it is, a person may have changed it.

    After a crash: the settings file is whole or absent. Raises `ConfigurationError` when the settings to copy are not found.
    """
    home = config.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    target = home / "dagster.yaml"
    if not target.exists():
        try:
            content = settings.read_bytes()
        except FileNotFoundError:
            raise ConfigurationError(
                f"{settings}: not found; run from a clone of the project, or write {target} yourself"
            ) from None
        aside = target.with_name(f".dagster.yaml.{os.getpid()}")
        aside.write_bytes(content)
        aside.replace(target)
    return home


def enter_home(config: Config, *, settings: Path = LOCAL_SETTINGS) -> Path:
    """Make this process and its children use the project's configuration and Dagster home, both absolute; returns the home."""
    home = prepare_home(config, settings=settings)
    os.environ["TILEWRIGHT_CONFIG"] = str(config.path)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    make_storages(home)
    return home


def make_storages(home: Path) -> None:
    """Let Dagster make its databases, once and by one process: web server and daemon that make them together spoil them.

    (Both stamp the same empty database, and every later start ends with "more than one head present".) After a crash: made again.
    """
    made = home / ".storages-made"
    if made.exists():
        return
    from dagster import DagsterInstance

    with (home / ".storages-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            DagsterInstance.from_config(str(home)).dispose()
            made.touch()
