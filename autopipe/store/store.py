"""The store: a memory of actions over content-addressed objects, all on one file system.

    actions/<key>.json   what ran, and what it produced
    objects/<digest>/    immutable artifacts
    work/<key>/          what an interrupted attempt left
    logs/                what the last attempt of each stage printed, and failed of
    records/             tuning records
    runs/                what each pipeline file ran last
    environments/        what was found out about TVM, once for each installation
    fingerprints/ locks/ tmp/ quarantine/

An object is in place before the action that names it, and both arrive by rename, so a reader
never sees half of either. Entries are checked when they are read; a damaged one is a miss.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from autopipe.errors import StageError, StoreError
from autopipe.store import entry, files, locks
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import Document
from autopipe.store.content import Manifest, TreeDigests, digest_tree
from autopipe.store.entry import Entry, NewerError
from autopipe.store.locks import FOR_EVER, Patience

_FOLDERS: Final = (
    "actions", "environments", "fingerprints", "locks", "logs", "objects", "quarantine", "records",
    "runs", "tmp", "work",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Store:
    """An open store; several processes may have it open."""

    root: Path
    tmp: Path
    """This process's own folder for what is not finished."""
    patience: Patience
    """Of waiting for other runs."""

    @property
    def contents(self) -> TreeDigests:
        """Digests of files, remembered in this store."""
        return TreeDigests(self.root / "fingerprints", self.tmp)

    @property
    def gate(self) -> Path:
        """Lock held shared where entries are read or made, and alone where they are deleted."""
        return self.root / "locks" / "gate"

    def lookup(self, key: str, warn: Callable[[str], None]) -> Artifact | None:
        """Return what this action produced before, if all of it is still there and sound.

        A damaged entry is moved to quarantine with one warning.
        """
        with files.wrap_os_errors(self.root), locks.hold_lock(self.gate, self.patience):
            try:
                stored = self.entry(key)
                if stored is None or not os.path.lexists(self.object(stored.digest)):
                    return None
                self._check_object(stored)
            except NewerError:
                warn(f"cache entry {key} was written by a later release; not used")
                return None
            except StoreError:
                warn(f"cache entry {key} failed its checksum; recomputed")
                self._quarantine_object(self._record_path(key))
                return None
            os.utime(self._record_path(key))
            return Artifact(stored.kind, stored.digest, self.object(stored.digest))

    def entry(self, key: str) -> Entry | None:
        """Return the record of an action, unchecked against its object.

        Raises StoreError for a damaged record, NewerError for one of a later release.
        """
        return entry.read_entry(self._record_path(key), key)

    def actions(self) -> list[str]:
        """Return the keys of all records, sorted."""
        with files.wrap_os_errors(self.root):
            return sorted(path.stem for path in (self.root / "actions").glob("*.json"))

    @contextmanager
    def lock(self, key: str, waiting: Callable[[str], None]) -> Iterator[None]:
        """Keep other runs from doing the same action; tell `waiting` whom this one waits for."""
        patience = replace(self.patience, tell=waiting)
        with ExitStack() as held:
            with files.wrap_os_errors(self.root):
                held.enter_context(locks.hold_exclusive_lock(self.root / "locks" / key, patience))
            yield

    def out(self) -> Path:
        """Return a new empty directory for an artifact in the making."""
        with files.wrap_os_errors(self.root):
            path = self.tmp / f"out-{secrets.token_hex(4)}"
            path.mkdir(mode=0o700)
            return path

    def work(self, key: str) -> Path:
        """Return the scratch directory of an action, as an interrupted attempt left it."""
        with files.wrap_os_errors(self.root):
            path = self.root / "work" / key
            if path.is_symlink() or not path.is_dir():
                files.remove(path)
            files.make_private_directory(path)
            return path

    def clear_work(self, key: str) -> None:
        """Forget what an attempt left."""
        with files.wrap_os_errors(self.root):
            files.remove(self.root / "work" / key)

    def log(self, name: str, key: str) -> Path:
        """Return where the last attempt of an action logs what it prints."""
        return self.root / "logs" / f"{name}-{key[:16]}.log"

    def commit(self, key: str, action: Document, kind: Kind, out: Path) -> Artifact:
        """Move the directory a stage has written into the store, and remember it.

        Raises StageError if nothing is in there, or a link or the like.
        """
        with files.wrap_os_errors(self.root):
            try:
                files.make_read_only(out)
            except StoreError as error:
                raise StageError(
                    f"stage {action['stage']} wrote what cannot be kept: {error}"
                ) from None
            staged = self.contents.manifest(out)
            if not any(file.size for file in staged):
                raise StageError(f"stage {action['stage']} ended well but wrote nothing")
            name = digest_tree(staged)
            with locks.hold_lock(self.gate, self.patience):
                self._place(out, name, staged)
                if not self._is_newer(key):
                    record = entry.encode_entry(action, kind, name, staged)
                    files.replace(self._record_path(key), record, self.tmp)
            return Artifact(kind, name, self.object(name))

    def object(self, name: str) -> Path:
        """Return where the artifact of this digest is kept."""
        return self.root / "objects" / name

    def damage(self, key: str) -> str | None:
        """Read every byte of an entry again; return what is wrong with it, None if nothing is."""
        with files.wrap_os_errors(self.root):
            try:
                stored = self.entry(key)
                if stored is not None:
                    self._check_object(stored, full=True)
            except (StoreError, FileNotFoundError) as error:
                return str(error)
            return None

    def _is_newer(self, key: str) -> bool:
        try:
            self.entry(key)
        except NewerError:
            return True
        except StoreError:  # about to be replaced
            return False
        return False

    def _check_object(self, stored: Entry, *, full: bool = False) -> None:
        """Compare an object with its record; move a damaged one out of the way and raise."""
        path = self.object(stored.digest)
        if not self._is_sound(path, stored.manifest, full=full):
            self._quarantine_object(path)
            raise StoreError(f"{path}: damaged")

    def _is_sound(self, path: Path, manifest: Manifest, *, full: bool = False) -> bool:
        try:
            return self.contents.manifest(path, full=full) == manifest
        except files.IrregularError:  # something is in there that no stage may leave
            return False

    def _place(self, out: Path, name: str, staged: Manifest) -> None:
        """Move an object to its place, unless a sound one is there already."""
        path = self.object(name)
        if os.path.lexists(path) and not self._is_sound(path, staged):
            self._quarantine_object(path)
        try:
            out.rename(path)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            files.remove(out)
            self.contents.forget(out)
            return
        path.chmod(0o500)
        files.sync_to_disk(path.parent)
        self.contents.moved(out, path)

    def _quarantine_object(self, path: Path) -> None:
        aside = self.root / "quarantine" / f"{path.name}.{secrets.token_hex(4)}"
        with suppress(FileNotFoundError):  # another run was quicker
            path.rename(aside)

    def _record_path(self, key: str) -> Path:
        return self.root / "actions" / f"{key}.json"


def find_default_root() -> Path:
    """Return `$AUTOPIPE_STORE`, or `.autopipe` in the current folder."""
    return Path(os.environ.get("AUTOPIPE_STORE") or ".autopipe")


@contextmanager
def open_store(root: Path, patience: Patience = FOR_EVER) -> Iterator[Store]:
    """Open a store for the length of a run; make it where there is none.

    Raises StoreError for one that cannot be used, that other users could write to, or that
    another process keeps longer than `patience` lasts.
    """
    root = root.absolute()
    with ExitStack() as stack:
        with files.wrap_os_errors(root):
            _prepare_root(root)
            tmp = stack.enter_context(
                locks.lease_folder(root / "tmp", root / "locks" / "gate", patience)
            )
        yield Store(root, tmp, patience)


def _prepare_root(root: Path) -> None:
    if not root.exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # another run may be as quick
    status = root.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{root}: not a directory")
    if status.st_mode & stat.S_IWOTH:
        raise StoreError(f"{root}: every user may write to it; chmod o-w it, or use another store")
    if os.geteuid() not in {0, status.st_uid}:
        raise StoreError(f"{root}: belongs to another user")
    for folder in _FOLDERS:
        files.make_private_directory(root / folder)
