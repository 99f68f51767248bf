"""Ends a child, with all that it has started."""

import os
import signal
import subprocess
from contextlib import suppress

from autopipe.processes.start import Forked

Process = Forked | subprocess.Popen[bytes]


def end_process(
    process: Process, *, patience: float | None = None, group: bool = True
) -> int | None:
    """Kill a process, and its group if it has one of its own; return its exit status.

    One that had ended by itself keeps its status, and what it has left running ends all the same.
    None where the kernel does not let go of it for so many seconds.
    """
    ended = process.poll() is not None
    with suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        elif not ended:
            os.kill(process.pid, signal.SIGKILL)
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def ask_to_end(process: Process, number: signal.Signals, patience: float) -> None:
    """Send a process a signal that it may still answer, and give it so many seconds."""
    if process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            os.kill(process.pid, number)
            process.wait(patience)
