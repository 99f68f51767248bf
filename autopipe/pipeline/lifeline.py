"""Ties the life of a process to its parent's, so that nothing measures on after a kill."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


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
