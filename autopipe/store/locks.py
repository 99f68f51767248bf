"""Locks between runs that share a store. The kernel frees them when their holder dies."""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.errors import StoreError
from autopipe.processes.lifeline import is_stopped
from autopipe.store import files

_QUIET: Final = 1.0
"""Seconds of waiting after which the holder is reported."""

_GLANCE: Final = 0.02
"""Seconds between two attempts."""


def _say_nothing(_who: str) -> None: ...


class Patience(NamedTuple):
    """Settings of waiting for a lock."""

    tell: Callable[[str], None] = _say_nothing
    """Called with the description of the holder."""
    seconds: float | None = None
    """Time limit of waiting; None for none."""


FOR_EVER: Final = Patience()


@contextmanager
def hold_exclusive_lock(path: Path, patience: Patience) -> Iterator[None]:
    """Hold a lock exclusively, with our process id in its file. Raises StoreError on timeout."""
    with hold_lock(path, patience, alone=True) as fd:
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield


@contextmanager
def hold_lock(path: Path, patience: Patience, *, alone: bool = False) -> Iterator[int]:
    """Hold a lock, shared or with `alone` exclusive; yield the descriptor of its file.

    Raises StoreError on timeout.
    """
    fd = _open_lock_file(path)
    try:
        _wait_for_lock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, path, patience)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def lease_folder(tmp: Path, gate: Path, patience: Patience) -> Iterator[Path]:
    """Create a folder in `tmp` for this run, and delete the folders of dead runs."""
    folder = tmp / f"{os.getpid()}-{secrets.token_hex(4)}"
    mark = folder.with_suffix(".lease")
    with hold_lock(gate, patience, alone=True):
        for lease in tmp.glob("*.lease"):
            if is_free(lease):
                files.remove(lease.with_suffix(""))
                files.remove(lease)
        fd = _open_lock_file(mark)
        fcntl.flock(fd, fcntl.LOCK_EX)
        files.make_private_directory(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):  # a full or vanished disk must not hide an earlier error
            files.remove(folder)
            mark.unlink()
        os.close(fd)


def find_oldest_lease(own_folder: Path) -> int | None:
    """Return the start time of the oldest other live run in ns since 1970; None without one."""
    marks = set(own_folder.parent.glob("*.lease")) - {own_folder.with_suffix(".lease")}
    return min((mark.lstat().st_mtime_ns for mark in marks if not is_free(mark)), default=None)


def is_free(path: Path) -> bool:
    """Return whether a lock is free; an irregular file counts as free."""
    try:
        fd = _open_lock_file(path)
    except files.IrregularError:
        return True
    try:
        return _try_lock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def describe_holder(path: Path) -> str:
    """Describe the holder of a lock, by its file or by the kernel's list of locks."""
    holder = ""
    with suppress(OSError, StoreError):
        holder = files.read(path)[:20].decode(errors="replace") or _known_to_the_kernel(path)
    if not holder.isdecimal():
        return "another process"
    return f"{'the stopped ' if is_stopped(int(holder)) else ''}process {holder}"


def _wait_for_lock(fd: int, how: int, path: Path, patience: Patience) -> None:
    """Wait for a lock, and report its holder; without a limit if `patience` has none."""
    start, is_reported = time.monotonic(), False
    while not _try_lock(fd, how):
        elapsed = time.monotonic() - start
        if patience.seconds is not None and elapsed >= patience.seconds:
            raise StoreError(
                f"{path}: {describe_holder(path)} has had this lock for more than "
                f"{patience.seconds:g} s;"
                " end it, or allow more with --lock-timeout"
            )
        if elapsed >= _QUIET and not is_reported:
            patience.tell(describe_holder(path))
            is_reported = True
        if is_reported and patience.seconds is None:
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
    """Return the id of a process that holds the lock; empty if it is unknown."""
    status = path.lstat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        _, kind, *_, pid, where, _, _ = line.split()  # lines of waiting processes have an arrow
        if (kind, where) == ("FLOCK", place):
            return pid
    return ""


def _open_lock_file(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return files.open_regular(path, flags)
