"""File operations of the store: atomic, and never through a symbolic link.

The callers convert `OSError` to a `StoreError` with the path (`wrap_os_errors`), so nothing is
caught here.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Final

from autopipe.errors import StoreError
from autopipe.host.copy_file import STRETCH

_IRREGULAR: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV})
"""Errors of opening a link, a socket, a folder or a device."""


class IrregularError(StoreError):
    """A link, a pipe, a socket or a device where only files and directories may be."""


@contextmanager
def wrap_os_errors(root: Path) -> Iterator[None]:
    """Convert an `OSError` to a `StoreError` with the path."""
    try:
        yield
    except OSError as error:
        where = error.filename or root
        raise StoreError(f"{where}: {error.strerror or error}") from error


def make_private_directory(path: Path) -> None:
    """Make a directory with mode 700; an existing one must be a real directory."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise StoreError(f"{path}: not a directory")


def make_own_directory(path: Path) -> Path | None:
    """Make a directory with mode 700; None if that fails, or another user owns it."""
    try:
        make_private_directory(path)
        return path if path.lstat().st_uid == os.geteuid() else None
    except (OSError, StoreError):
        return None


def open_no_follow(path: Path) -> BufferedReader:
    """Open a regular file that is not a symbolic link, without blocking on pipes.

    Raises IrregularError for anything else.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(open_regular(path, flags), "rb")


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file; return its descriptor. Raises IrregularError for anything else."""
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
    """Read up to `largest` bytes of a regular file that is not a symbolic link."""
    with open_no_follow(path) as file:
        return file.read(largest)


def is_irregular(path: Path) -> bool:
    """Return whether a path exists and is no regular file, but a link or a pipe, say."""
    return os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode)


def read_or_discard(path: Path, largest: int = -1) -> bytes | None:
    """Read a file of the store that can be recreated; None if it does not exist.

    An irregular file is removed, as the store writes none.
    """
    try:
        return read(path, largest)
    except FileNotFoundError:
        return None
    except IrregularError:
        remove(path)
        return None


def sha256(path: Path, report: Callable[[int], None] = lambda _: None) -> str:
    """Digest a regular file that is not a symbolic link; `report` gets the bytes of each part."""
    digest = hashlib.sha256()
    with open_no_follow(path) as file:
        while part := file.read(STRETCH):
            digest.update(part)
            report(len(part))
    return digest.hexdigest()


def replace(path: Path, data: bytes, tmp: Path, *, mode: int = 0o600) -> None:
    """Write a file atomically and durably.

    `tmp` is a private folder of the same file system.
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
    """Flush a file, or the entries of a directory, to the disk."""
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


def make_read_only(tree: Path, report: Callable[[int], None] = lambda _: None) -> None:
    """Make everything below durable and read-only, except `tree` itself, which is moved later.

    `report` gets the bytes of each file. Raises IrregularError at anything that is neither a
    regular file nor a directory.
    """
    for name, status in walk(tree):
        (tree / name).chmod(0o400)
        sync_to_disk(tree / name)
        report(status.st_size)
    for folder, _, _ in os.walk(tree, topdown=False):
        sync_to_disk(Path(folder))
        if Path(folder) != tree:
            Path(folder).chmod(0o500)


def remove(path: Path) -> None:
    """Delete a file or a tree, even if read-only, if it exists."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o700)
    try:
        shutil.rmtree(path)
    except OSError as error:
        error.filename = os.fspath(path)  # it has only the last component
        raise
