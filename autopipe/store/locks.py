"""Locks between runs that share a store. The kernel frees them when their holder dies."""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.errors import StoreError
from autopipe.processes.lifeline import is_stopped
from autopipe.store import files

_QUIET: Final = 1.0
"""Seconds of waiting that are not worth a word."""

_GLANCE: Final = 0.02
"""Seconds between two attempts."""


def _say_nothing(_who: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """What waiting for a lock is like."""

    tell: Callable[[str], None] = _say_nothing
    """Is told who has it."""
    seconds: float | None = None
    """After which waiting is given up; null for never."""


FOR_EVER: Final = Patience()


@contextmanager
def hold_exclusive_lock(path: Path, patience: Patience) -> Iterator[None]:
    """Hold a lock alone, and have its file say so. Raises StoreError where patience ends."""
    with hold_lock(path, patience, alone=True) as fd:
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield


@contextmanager
def hold_lock(path: Path, patience: Patience, *, alone: bool = False) -> Iterator[int]:
    """Hold a lock that many may hold at a time, or, `alone`, nobody else; give its file.

    Raises StoreError where patience ends.
    """
    fd = _open_lock_file(path)
    try:
        _wait_for_lock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, path, patience)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def lease_folder(tmp: Path, gate: Path, patience: Patience) -> Iterator[Path]:
    """Give a folder in `tmp` that is this run's own, and clear those whose run is dead."""
    folder = tmp / f"{os.getpid()}-{secrets.token_hex(4)}"
    mark = folder.with_suffix(".lease")
    with hold_lock(gate, patience, alone=True):
        for other in tmp.glob("*.lease"):
            if is_free(other):
                files.remove(other.with_suffix(""))
                files.remove(other)
        fd = _open_lock_file(mark)
        fcntl.flock(fd, fcntl.LOCK_EX)
        files.make_private_directory(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):  # a full or vanished disk must not hide what went wrong before
            files.remove(folder)
            mark.unlink()
        os.close(fd)


def find_oldest_lease(own: Path) -> int | None:
    """Return when the oldest other live run began, in nanoseconds since 1970; None without one."""
    marks = set(own.parent.glob("*.lease")) - {own.with_suffix(".lease")}
    return min((mark.lstat().st_mtime_ns for mark in marks if not is_free(mark)), default=None)


def is_free(path: Path) -> bool:
    """Return whether nobody holds the lock; what is no file cannot be held."""
    try:
        fd = _open_lock_file(path)
    except files.IrregularError:
        return True
    try:
        return _try_lock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def describe_holder(path: Path) -> str:
    """Name who has a lock, as its file says, or the kernel, which knows all who share it."""
    said = ""
    with suppress(OSError, StoreError):
        said = files.read(path)[:20].decode(errors="replace") or _known_to_the_kernel(path)
    if not said.isdecimal():
        return "another process"
    return f"{'the stopped ' if is_stopped(int(said)) else ''}process {said}"


def _wait_for_lock(fd: int, how: int, path: Path, patience: Patience) -> None:
    """Wait for a lock, and tell for whom; for ever only where nobody wants otherwise."""
    begun, told = time.monotonic(), False
    while not _try_lock(fd, how):
        waited = time.monotonic() - begun
        if patience.seconds is not None and waited >= patience.seconds:
            raise StoreError(
                f"{path}: {describe_holder(path)} has had this lock for more than "
                f"{patience.seconds:g} s;"
                " end it, or allow more with --lock-timeout"
            )
        if waited >= _QUIET and not told:
            patience.tell(describe_holder(path))
            told = True
        if told and patience.seconds is None:
            fcntl.flock(fd, how)
            return
        time.sleep(_GLANCE)


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _known_to_the_kernel(path: Path) -> str:
    """Return the id of a process that has the lock; nothing where it cannot be known."""
    status = path.lstat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        _, kind, *_, pid, where, _, _ = line.split()  # those who wait have an arrow besides
        if (kind, where) == ("FLOCK", place):
            return pid
    return ""


def _open_lock_file(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return files.open_regular(path, flags)
