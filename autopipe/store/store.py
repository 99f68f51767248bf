"""The store: records of actions over content-addressed objects, all on one file system.

    actions/<key>.json   an action, and its result
    objects/<digest>/    immutable artifacts
    work/<key>/          scratch files of an interrupted attempt
    logs/                output and error of the last attempt of each stage
    records/             tuning records
    runs/                the last run of each pipeline file
    environments/        facts about TVM, once for each installation
    fingerprints/ locks/ tmp/ quarantine/

An object is in place before its action, and both are renamed into place, so a reader never sees a
partial one. Entries are checked when they are read; a damaged one is a miss.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.errors import StageError, StoreError
from autopipe.host.copy_file import CountBytes, count_nothing
from autopipe.store import entry, files, locks
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import Document
from autopipe.store.content import Manifest, TreeDigests, digest_tree
from autopipe.store.entry import Entry
from autopipe.store.locks import FOR_EVER, Patience

_FOLDERS: Final = (
    "actions", "environments", "fingerprints", "locks", "logs", "objects", "quarantine", "records",
    "runs", "tmp", "work",
)  # fmt: skip


class Store(NamedTuple):
    """An open store; several processes may have it open."""

    root: Path
    tmp: Path
    """Private folder of this process for unfinished files."""
    patience: Patience
    """Settings of waiting for other runs."""

    @property
    def contents(self) -> TreeDigests:
        """Digests of files, cached in this store."""
        return TreeDigests(self.root / "fingerprints", self.tmp)

    @property
    def gate(self) -> Path:
        """Lock held shared to read or make entries, and exclusively to delete them."""
        return self.root / "locks" / "gate"

    def lookup(self, key: str, warn: Callable[[str], None]) -> Artifact | None:
        """Return the cached result of an action, if it is complete and undamaged.

        A damaged entry is moved to quarantine with one warning.
        """
        with files.wrap_os_errors(self.root), locks.hold_lock(self.gate, self.patience):
            try:
                record = self.entry(key)
                if record is None or not os.path.lexists(self.object(record.digest)):
                    return None
                self._check_object(record)
            except StoreError:
                warn(f"cache entry {key} failed its checksum; recomputed")
                self._quarantine_object(self._record_path(key))
                return None
            os.utime(self._record_path(key))
            return Artifact(record.kind, record.digest, self.object(record.digest))

    def entry(self, key: str) -> Entry | None:
        """Return the record of an action, unchecked against its object.

        Raises StoreError for a damaged record.
        """
        return entry.read_entry(self._record_path(key), key)

    def actions(self) -> list[str]:
        """Return the keys of all records, sorted."""
        with files.wrap_os_errors(self.root):
            return sorted(path.stem for path in (self.root / "actions").glob("*.json"))

    @contextmanager
    def lock(self, key: str, waiting: Callable[[str], None]) -> Iterator[None]:
        """Lock an action against other runs; `waiting` is called with a holder it waits for."""
        patience = self.patience._replace(tell=waiting)
        with ExitStack() as stack:
            with files.wrap_os_errors(self.root):
                stack.enter_context(locks.hold_exclusive_lock(self.root / "locks" / key, patience))
            yield

    def out(self) -> Path:
        """Create an empty directory for a new artifact."""
        with files.wrap_os_errors(self.root):
            path = self.tmp / f"out-{secrets.token_hex(4)}"
            path.mkdir(mode=0o700)
            return path

    def work(self, key: str) -> Path:
        """Return the scratch directory of an action, with the files of an interrupted attempt."""
        with files.wrap_os_errors(self.root):
            path = self.root / "work" / key
            if path.is_symlink() or not path.is_dir():
                files.remove(path)
            files.make_private_directory(path)
            return path

    def clear_work(self, key: str) -> None:
        """Delete the scratch directory of an attempt."""
        with files.wrap_os_errors(self.root):
            files.remove(self.root / "work" / key)

    def log(self, name: str, key: str) -> Path:
        """Return the path of the log of an action's last attempt."""
        return self.root / "logs" / f"{name}-{key[:16]}.log"

    def commit(
        self,
        key: str,
        action: Document,
        kind: Kind,
        out: Path,
        count: CountBytes = count_nothing,
    ) -> Artifact:
        """Move the output directory of a stage into the store, and write its record.

        `count` counts all bytes twice: when they are on the disk, and when they are digested.
        Raises StageError if it is empty, or has links or other irregular files.
        """
        with files.wrap_os_errors(self.root):
            try:
                report = count(sum(status.st_size for _, status in files.walk(out)))
                files.make_read_only(out, report)
            except StoreError as error:
                raise StageError(
                    f"stage {action['stage']} wrote what cannot be kept: {error}"
                ) from None
            manifest = self.contents.manifest(out, report=report)
            if not any(file.size for file in manifest):
                raise StageError(f"stage {action['stage']} ended well but wrote nothing")
            name = digest_tree(manifest)
            with locks.hold_lock(self.gate, self.patience):
                self._place(out, name, manifest)
                record = entry.encode_entry(action, kind, name, manifest)
                files.replace(self._record_path(key), record, self.tmp)
            return Artifact(kind, name, self.object(name))

    def object(self, name: str) -> Path:
        """Return the path of the artifact of a digest."""
        return self.root / "objects" / name

    def damage(self, key: str) -> str | None:
        """Check every byte of an entry; return the error, or None if it is sound."""
        with files.wrap_os_errors(self.root):
            try:
                record = self.entry(key)
                if record is not None:
                    self._check_object(record, full=True)
            except (StoreError, FileNotFoundError) as error:
                return str(error)
            return None

    def _check_object(self, record: Entry, *, full: bool = False) -> None:
        """Compare an object with its record; quarantine a damaged one and raise StoreError."""
        path = self.object(record.digest)
        if not self._is_sound(path, record.manifest, full=full):
            self._quarantine_object(path)
            raise StoreError(f"{path}: damaged")

    def _is_sound(self, path: Path, manifest: Manifest, *, full: bool = False) -> bool:
        try:
            return self.contents.manifest(path, full=full) == manifest
        except files.IrregularError:  # a file that no stage may write
            return False

    def _place(self, out: Path, name: str, manifest: Manifest) -> None:
        """Move an object into place, unless a sound one exists."""
        path = self.object(name)
        if os.path.lexists(path) and not self._is_sound(path, manifest):
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


def find_records(root: Path) -> Path:
    """Return the path of the tuning records in a store."""
    return root / "records" / "records.sqlite"


def find_default_root() -> Path:
    """Return `$AUTOPIPE_STORE`, or `.autopipe` in the current folder."""
    return Path(os.environ.get("AUTOPIPE_STORE") or ".autopipe")


@contextmanager
def open_store(root: Path, patience: Patience = FOR_EVER) -> Iterator[Store]:
    """Open a store for the duration of a run; create it if there is none.

    Raises StoreError for a store that is unusable, writable by other users, or locked by another
    process for longer than `patience`.
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
