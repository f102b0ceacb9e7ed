"""Where finished outputs live: stage, promote, list, set aside. Closes the crash window between a written file and its name.

A final name is written once: promote is *create if absent*, and nothing is ever overwritten, save window outputs, which keep one
name and are replaced whole. The store knows itself: its identity file is what tells an unmounted disk from an empty store.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from resources.errors import EnvironmentUnfit, ErrorKind
from resources.trees import digest_of_content, is_directory_name, remove_content, size_of, sync_folder

IDENTITY_NAME = ".tilewright-store"
STAGING_PREFIX = ".staged-"
ASIDE_PREFIX = ".aside-"
_SAFE_PART = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A staging file found by the sweep: whose it is and how old."""

    path: Path
    run_tag: str
    mtime: float


class LocalStore:
    """A store on one POSIX filesystem. Open it with `open_store`, which checks that it is the right one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, uri: str) -> Path:
        """Absolute path of a relative output URI. Raises `ValueError` for a URI that could leave the root or look hidden."""
        parts = PurePosixPath(uri).parts
        if not parts or not all(_SAFE_PART.match(part) for part in parts):
            raise ValueError(f"not an output URI: {uri!r}; allowed: parts of [A-Za-z0-9._-] that do not begin with a dot")
        return self.root.joinpath(*parts)

    def identity(self) -> str | None:
        """The store's own name, or None where no identity file is found."""
        try:
            return (self.root / IDENTITY_NAME).read_text(encoding="ascii").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def staging_path(self, uri: str, *, run_id: str) -> Path:
        """A name in the destination's folder that nobody else can have and no reader takes for an output. Makes the folder."""
        final = self.path(uri)
        self._make_folder(final.parent)
        return final.parent / _staging_name(final.name, run_id=run_id)

    def scratch_path(self, *, run_id: str) -> Path:
        """A staging name that never becomes an output, for work that leaves no file."""
        return self.root / _staging_name("scratch", run_id=run_id)

    def promote(self, staged: Path, uri: str) -> bool:
        """Give the staged output its final name unless the name is taken. True: promoted. False: the name exists, `staged` stays.

        The name is durable only after `sync_folders`. After a crash: either the final name is whole, or only the staging name
        is there, which `sweep` removes.
        """
        final = self.path(uri)
        try:
            _rename_without_replace(staged, final)
        except FileExistsError:
            return False
        return True

    def replace(self, staged: Path, uri: str) -> None:
        """Give the staged file its final name, replacing an older window output whole. After a crash: the old or the new one."""
        os.replace(staged, self.path(uri))

    def sync_folders(self, uris: Iterable[str]) -> None:
        """Make the names of promoted outputs durable: one fsync for each distinct folder. A failure is never retried here."""
        for folder in sorted({self.path(uri).parent for uri in uris}):
            sync_folder(folder)

    def listing(self, prefix: str) -> dict[str, int]:
        """URI -> size in bytes of the outputs directly under a folder URI. Staging and set-aside names are not outputs."""
        folder = self.path(prefix)
        found: dict[str, int] = {}
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_file(follow_symlinks=False):
                    found[f"{prefix}/{entry.name}"] = entry.stat(follow_symlinks=False).st_size
                elif is_directory_name(entry.name):
                    found[f"{prefix}/{entry.name}"] = size_of(Path(entry))
        return found

    def walk(self, prefix: str = "") -> Iterator[str]:
        """URIs of all outputs at and below a folder URI."""
        top = self.path(prefix) if prefix else self.root
        for folder, folders, names in os.walk(top):
            whole = [name for name in folders if is_directory_name(name)]
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in whole)
            base = Path(folder).relative_to(self.root)
            outputs = sorted(name for name in [*names, *whole] if not name.startswith("."))
            yield from (str(PurePosixPath(*base.parts, name)) for name in outputs)

    def staged_files(self) -> Iterator[StagedFile]:
        """All staging files and directories of the store, whoever left them."""
        for folder, folders, names in os.walk(self.root):
            staged = [name for name in folders if name.startswith(STAGING_PREFIX)]
            folders[:] = [name for name in folders if name not in staged and not is_directory_name(name)]
            for name in [*staged, *names]:
                if name.startswith(STAGING_PREFIX):
                    path = Path(folder, name)
                    try:
                        yield StagedFile(path, name.removeprefix(STAGING_PREFIX).split("-", 1)[0], path.lstat().st_mtime)
                    except FileNotFoundError:
                        continue

    def set_aside(self, uri: str) -> Path:
        """Move an output that does not verify to a hidden name beside it: nothing is lost, and the final name is free again."""
        final = self.path(uri)
        aside = final.parent / f"{ASIDE_PREFIX}{secrets.token_hex(6)}-{final.name}"
        os.rename(final, aside)
        sync_folder(final.parent)
        return aside

    def remove(self, uri: str) -> None:
        """Remove one output (sweep of superseded outputs). A missing one is fine.

        After a crash: it is there whole, or what is left of it has a staging name, which `sweep` removes.
        """
        final = self.path(uri)
        gone = final.parent / _staging_name(final.name, run_id="removed")
        with suppress(FileNotFoundError):
            os.rename(final, gone)
            remove_content(gone)

    def size(self, uri: str) -> int | None:
        """Size in bytes of an output; None where it is absent."""
        try:
            return size_of(self.path(uri))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def digest(self, uri: str) -> str:
        """Digest of an output as it is now. Raises `FileNotFoundError` where it is absent, `OSError` where it cannot be read."""
        return digest_of_content(self.path(uri))

    def free_bytes(self) -> int:
        """Bytes an unprivileged writer may still use."""
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def check(self, *, expected: str | None, min_free_bytes: int = 0) -> None:
        """Raise `EnvironmentUnfit` unless this is the store the ledger remembers, writable, with room. Not the unit's fault."""
        try:
            self._check(expected, min_free_bytes)
        except OSError as error:
            raise _unusable(self.root, error) from error

    def _check(self, expected: str | None, min_free_bytes: int) -> None:
        found = self.identity()
        if found is None or (expected is not None and found != expected):
            raise EnvironmentUnfit(
                f"{self.root}: this is not the store the ledger remembers (expected identity {expected}, found {found}); "
                "mount the right disk, or name the right folder in store.uri. Nothing was written",
                kind=ErrorKind.STORE_MISSING,
            )
        if not os.access(self.root, os.W_OK | os.X_OK) or os.statvfs(self.root).f_flag & os.ST_RDONLY:
            raise EnvironmentUnfit(
                f"{self.root}: cannot be written; mend its permissions or mount", kind=ErrorKind.STORE_UNWRITABLE
            )
        free = self.free_bytes()
        if free < min_free_bytes:
            raise EnvironmentUnfit(
                f"{self.root}: {free / 1e6:.0f} MB free, store.min_free_mb asks for {min_free_bytes / 1e6:.0f}; make room",
                kind=ErrorKind.DISK_FULL,
            )

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if self.identity() is None:
            raise EnvironmentUnfit(
                f"{self.root}: the store's identity file is gone; mount the right disk. Nothing was written",
                kind=ErrorKind.STORE_MISSING,
            )
        self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            return
        sync_folder(folder.parent)


def open_store(root: Path, *, remembered: str | None, remember: Callable[[str], None]) -> LocalStore:
    """The store at `root`, which must be the one remembered. A project's first run makes a new one and remembers it.

    Raises `EnvironmentUnfit`: STORE_MISSING when the ledger remembers a store and `root` does not hold it (an unmounted disk is
    an empty folder), STORE_UNWRITABLE when it cannot be made or read.

    After a crash: an identity file that was not yet remembered is remembered by the next call.
    """
    store = LocalStore(root)
    if remembered is None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            identity = store.identity() or _write_identity(root)
        except OSError as error:
            raise _unusable(root, error) from error
        remember(identity)
        remembered = identity
    store.check(expected=remembered)
    return store


def _unusable(root: Path, error: OSError) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"{root}: the store cannot be used ({error.strerror}); mend its permissions or mount", kind=ErrorKind.STORE_UNWRITABLE
    )


def _write_identity(root: Path) -> str:
    identity = secrets.token_hex(16)
    staged = root / f"{IDENTITY_NAME}.{identity}"
    with staged.open("x", encoding="ascii") as stream:
        stream.write(identity + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    try:
        _rename_without_replace(staged, root / IDENTITY_NAME)
    except FileExistsError:
        staged.unlink()
    sync_folder(root)
    return (root / IDENTITY_NAME).read_text(encoding="ascii").strip()


def run_tag(run_id: str) -> str:
    """The part of a run id that staging names carry (no dashes)."""
    return re.sub(r"[^A-Za-z0-9]", "", run_id)[:12] or "none"


def _staging_name(name: str, *, run_id: str) -> str:
    return f"{STAGING_PREFIX}{run_tag(run_id)}-{secrets.token_hex(6)}-{name}"


def _rename_without_replace(source: Path, target: Path) -> None:
    """One system call where the filesystem has it (renameat2), else link and unlink. Raises `FileExistsError` when taken.

    A directory that is renamed takes the place of an empty one only, and no output is empty.
    """
    if hasattr(_libc, "renameat2"):
        done = _libc.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
        if done == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(number, os.strerror(number), str(target))
    if source.is_dir():
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
            raise
        return
    os.link(source, target)
    os.unlink(source)
