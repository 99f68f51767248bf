"""Locks between runs that share a store. The kernel frees them when their holder dies."""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autopipe.pipeline import files


@contextmanager
def exclusive(path: Path, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock alone; while another process has it, tell `waiting` who, then wait."""
    fd = _open(path)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting(os.pread(fd, 100, 0).decode(errors="replace") or "another process")
            fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(fd)


@contextmanager
def shared(path: Path, *, alone: bool = False) -> Iterator[None]:
    """Hold a lock that many may hold at a time, or, `alone`, nobody else."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def lease(tmp: Path, gate: Path) -> Iterator[Path]:
    """Give a folder in `tmp` that is this run's own, and clear those whose run is dead."""
    folder = tmp / f"{os.getpid()}-{secrets.token_hex(4)}"
    mark = folder.with_suffix(".lease")
    with shared(gate, alone=True):
        for other in tmp.glob("*.lease"):
            if free(other):
                files.remove(other.with_suffix(""))
                files.remove(other)
        fd = _open(mark)
        fcntl.flock(fd, fcntl.LOCK_EX)
        files.private_directory(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):  # a full or vanished disk must not hide what went wrong before
            files.remove(folder)
            mark.unlink()
        os.close(fd)


def oldest_lease(own: Path) -> int | None:
    """Return when the oldest other live run began, in nanoseconds since 1970; None without one."""
    marks = set(own.parent.glob("*.lease")) - {own.with_suffix(".lease")}
    return min((mark.lstat().st_mtime_ns for mark in marks if not free(mark)), default=None)


def free(path: Path) -> bool:
    """Return whether nobody holds the lock."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
