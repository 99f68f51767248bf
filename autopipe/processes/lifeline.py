"""Ends a process with its parent, so that nothing keeps measuring after a kill."""

import os
import signal
from collections.abc import Collection
from typing import Final

_PR_SET_PDEATHSIG: Final = 1

_STOPPED: Final = "T"
"""The kernel's name of the state of a stopped process."""


def die_with_parent(parent: int | None = None, number: int = signal.SIGKILL) -> None:
    """Send this process a signal as soon as the thread that forked it ends (PR_SET_PDEATHSIG).

    Call it first in every child: the setting does not survive another fork. `parent`, the process
    id of the parent, detects a parent that died before this call. Raises OSError if the kernel
    refuses.
    """
    import ctypes  # only in children

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if parent not in {None, os.getppid()}:
        os.kill(os.getpid(), number)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    return _read_process_status(pid)[:1] == [_STOPPED]


def any_stopped(groups: Collection[int]) -> bool:
    """Return whether any process of these process groups is stopped by a signal."""
    from pathlib import Path

    statuses = (
        _read_process_status(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdecimal()
    )
    return any(status[0] == _STOPPED and int(status[2]) in groups for status in statuses if status)


def _read_process_status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    from pathlib import Path  # takes 2 ms, and children are started before it is needed

    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
