"""File operations of the store: whole or not at all, and never through a symbolic link.

An `OSError` out of them becomes a `StoreError` that names the path where the store is entered
(`wrap_os_errors`), so in here nothing is caught.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Final

from autopipe.errors import StoreError

_IRREGULAR: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV})
"""What opening a link, a socket, a folder or a device ends in."""


class IrregularError(StoreError):
    """A link, a pipe, a socket or a device where only files and directories may be."""


@contextmanager
def wrap_os_errors(root: Path) -> Iterator[None]:
    """Turn an `OSError` inside into a `StoreError` that names the path."""
    try:
        yield
    except OSError as error:
        where = error.filename or root
        raise StoreError(f"{where}: {error.strerror or error}") from error


def make_private_directory(path: Path) -> None:
    """Make a directory only its owner may enter; one that is there must be a real directory."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise StoreError(f"{path}: not a directory")


def make_own_directory(path: Path) -> Path | None:
    """Make a directory only this user may enter; None where that is not, or somebody else's."""
    try:
        make_private_directory(path)
        return path if path.lstat().st_uid == os.geteuid() else None
    except (OSError, StoreError):
        return None


def open_no_follow(path: Path) -> BufferedReader:
    """Open a regular file that is not a symbolic link, without waiting for who writes to a pipe.

    Raises IrregularError for anything else.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(open_regular(path, flags), "rb")


def open_regular(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file. Raises IrregularError for anything else."""
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in _IRREGULAR:
            raise IrregularError(f"{path}: not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IrregularError(f"{path}: not a regular file")
    return descriptor


def read(path: Path, largest: int = -1) -> bytes:
    """Read a regular file that is not a symbolic link, so many bytes of it at most."""
    with open_no_follow(path) as file:
        return file.read(largest)


def is_irregular(path: Path) -> bool:
    """Tell whether there is something that is no regular file, such as a link or a pipe."""
    return os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode)


def read_or_discard(path: Path, largest: int = -1) -> bytes | None:
    """Read a file of the store that can be made again, None if it is not there.

    What is no regular file is removed: it was not ours.
    """
    try:
        return read(path, largest)
    except FileNotFoundError:
        return None
    except IrregularError:
        remove(path)
        return None


def sha256(path: Path) -> str:
    """Digest a regular file that is not a symbolic link."""
    with open_no_follow(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace(path: Path, data: bytes, tmp: Path, *, mode: int = 0o600) -> None:
    """Write a file so that a reader, or a crash, sees the old bytes or the new ones.

    `tmp` is a folder of the same file system that nobody else writes to.
    """
    temporary = tmp / f".{path.name}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105 -- one place where the crash tests reach all calls
    sync_to_disk(path.parent)


def sync_to_disk(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power failure."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def walk(tree: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative name and status of each file below, sorted; a lone file is called `.`.

    Raises IrregularError at anything that is neither a regular file nor a directory.
    """
    status = tree.lstat()
    if stat.S_ISREG(status.st_mode):
        yield ".", status
        return
    if not stat.S_ISDIR(status.st_mode):
        raise IrregularError(f"{tree}: neither a regular file nor a directory")
    for name in sorted(_list_names(tree, "")):
        yield name, (tree / name).lstat()


def _list_names(tree: Path, prefix: str) -> Iterator[str]:
    with os.scandir(tree / prefix) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _list_names(tree, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name
            else:
                raise IrregularError(f"{entry.path}: neither a regular file nor a directory")


def make_read_only(tree: Path) -> None:
    """Make everything below durable and read-only; `tree` itself stays open to be moved.

    Raises IrregularError at anything that is neither a regular file nor a directory.
    """
    for name, _ in walk(tree):
        (tree / name).chmod(0o400)
        sync_to_disk(tree / name)
    for folder, _, _ in os.walk(tree, topdown=False):
        sync_to_disk(Path(folder))
        if Path(folder) != tree:
            Path(folder).chmod(0o500)


def remove(path: Path) -> None:
    """Delete a file or a tree, read-only or not; nothing happens if it is not there."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o700)
    try:
        shutil.rmtree(path)
    except OSError as error:
        error.filename = os.fspath(path)  # it says the last part of a name alone
        raise
