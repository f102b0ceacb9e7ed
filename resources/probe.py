"""The probe: is what runs stand on fit for use? Asked before runs are requested, and by `doctor`.

After a stop, nothing new is started until this finds nothing to complain of: a full or unmounted disk is no reason to launch
the same run every half minute.
"""

from __future__ import annotations

import os
from pathlib import Path

from resources.config import Config
from resources.errors import TilewrightError
from resources.ledger import Ledger
from resources.opening import open_project_store


def probe(config: Config, ledger: Ledger) -> list[str]:
    """What is unfit, in words a person can act on; empty when runs may start. Makes the store on a project's first day, else
    writes nothing.

    Raises nothing for an unfit store or source; what the ledger itself raises passes through.
    """
    problems = _store_problems(config, ledger)
    for folder in config.input_dirs:
        problems += _folder_problems(folder, config.source_key)
    return problems


def _store_problems(config: Config, ledger: Ledger) -> list[str]:
    try:
        store = open_project_store(config, ledger)
        store.check(expected=ledger.remembered_store(), min_free_bytes=config.store.min_free_mb * 1_000_000)
    except TilewrightError as error:
        return [error.message]
    return []


def _folder_problems(folder: Path, key: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
    except FileNotFoundError:
        return [f"{folder}: the source folder is not there; mount it, or name the right folder in {key}"]
    except NotADirectoryError:
        return [f"{folder}: the source is not a folder; name the right one in {key}"]
    except OSError as error:
        return [f"{folder}: the source folder cannot be read ({error.strerror}); mend its permissions or mount"]
    return []
