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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from resources.errors import EnvironmentUnfit, ErrorKind

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
        return final.parent / f"{STAGING_PREFIX}{run_tag(run_id)}-{secrets.token_hex(6)}-{final.name}"

    def promote(self, staged: Path, uri: str) -> bool:
        """Give the staged file its final name unless the name is taken. True: promoted. False: the name exists, `staged` stays.

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
            _sync_folder(folder)

    def listing(self, prefix: str) -> dict[str, int]:
        """URI -> size in bytes of the outputs directly under a folder URI. Staging and set-aside names are not outputs."""
        folder = self.path(prefix)
        try:
            with os.scandir(folder) as entries:
                return {
                    f"{prefix}/{entry.name}": entry.stat(follow_symlinks=False).st_size
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)
                }
        except FileNotFoundError:
            return {}

    def walk(self, prefix: str = "") -> Iterator[str]:
        """URIs of all outputs at and below a folder URI."""
        top = self.path(prefix) if prefix else self.root
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            base = Path(folder).relative_to(self.root)
            yield from (str(PurePosixPath(*base.parts, name)) for name in sorted(names) if not name.startswith("."))

    def staged_files(self) -> Iterator[StagedFile]:
        """All staging files of the store, whoever left them."""
        for folder, _, names in os.walk(self.root):
            for name in names:
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
        _sync_folder(final.parent)
        return aside

    def remove(self, uri: str) -> None:
        """Remove one output (sweep of superseded outputs). A missing one is fine."""
        self.path(uri).unlink(missing_ok=True)

    def size(self, uri: str) -> int | None:
        """Size in bytes of an output; None where it is absent."""
        try:
            return self.path(uri).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

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
        _sync_folder(folder.parent)


class Listings:
    """One listing per folder of the store, made when first asked."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._known: dict[str, dict[str, int]] = {}

    def size(self, uri: str) -> int | None:
        """Size in bytes of an output when its folder was first listed; None where it was absent."""
        prefix = uri.rpartition("/")[0]
        if prefix not in self._known:
            self._known[prefix] = self._store.listing(prefix)
        return self._known[prefix].get(uri)


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
    _sync_folder(root)
    return (root / IDENTITY_NAME).read_text(encoding="ascii").strip()


def run_tag(run_id: str) -> str:
    """The part of a run id that staging names carry (no dashes)."""
    return re.sub(r"[^A-Za-z0-9]", "", run_id)[:12] or "none"


def sync_file(path: Path) -> int:
    """Make a staged file's bytes durable; returns its size. A failed fsync is never retried: drop the file, do the unit again."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_without_replace(source: Path, target: Path) -> None:
    """One system call where the filesystem has it (renameat2), else link and unlink. Raises `FileExistsError` when taken."""
    if hasattr(_libc, "renameat2"):
        done = _libc.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
        if done == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(number, os.strerror(number), str(target))
    os.link(source, target)
    os.unlink(source)
