"""Ties the life of a process to its parent's, so that nothing measures on after a kill."""

import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1

_STOPPED: Final = "T"
"""What the kernel calls the state of such a process."""


def die_with_parent(parent: int | None = None, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal as soon as the thread that forked it ends.

    Call it first in every child: the setting does not survive another fork. Give `parent`, the
    process id of the parent, to notice also one that died before this call. Raises OSError where
    the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if parent not in {None, os.getppid()}:
        os.kill(os.getpid(), number)


def is_stopped(pid: int) -> bool:
    """Return whether a signal keeps a process from going on."""
    return _read_process_status(pid)[:1] == [_STOPPED]


def any_stopped(groups: Collection[int]) -> bool:
    """Return whether a signal keeps a process of these process groups from going on."""
    found = (
        _read_process_status(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdecimal()
    )
    return any(status[0] == _STOPPED and int(status[2]) in groups for status in found if status)


def _read_process_status(pid: int) -> list[str]:
    """Return state, parent and group of a process, and more; nothing of one that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
