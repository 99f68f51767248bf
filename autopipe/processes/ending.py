"""Ends a child process and its process group."""

import os
import signal
import subprocess
from contextlib import suppress

from autopipe.processes.start import Forked

Process = Forked | subprocess.Popen[bytes]


def end_process(
    process: Process, *, patience: float | None = None, group: bool = True
) -> int | None:
    """Kill a process, and with `group` its process group; return its exit status.

    A process that has ended keeps its status, and its process group is killed all the same. None
    if the kernel does not end it within `patience` seconds.
    """
    has_ended = process.poll() is not None
    with suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        elif not has_ended:
            os.kill(process.pid, signal.SIGKILL)
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def ask_to_end(process: Process, number: signal.Signals, patience: float) -> None:
    """Send a signal to a process and wait up to `patience` seconds for its end."""
    if process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            os.kill(process.pid, number)
            process.wait(patience)
