"""Starts child processes: forks of this process, or programs `python -m autopipe...`.

Both end with this process. A fork has its own process group, so that it can be ended with all its
children, and writes no core. A program gets only the environment variables that it needs, and
exchanges messages over its standard input, so that its output never mixes with them.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from select import POLLIN, poll
from typing import IO

from autopipe.processes.lifeline import die_with_parent
from autopipe.processes.link import Link, make_link_pair
from autopipe.processes.variables import select_variables


class Forked:
    """A fork of this process, with the part of `subprocess.Popen` that ending it needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """Exit status, negative for a signal; None while it is not known."""
        self.usage: resource.struct_rusage
        """Resource usage, set when it has ended."""

    def poll(self) -> int | None:
        """Return its exit status, if it has ended."""
        return self._reap_child(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status once it has ended. Raises TimeoutExpired."""
        if timeout is not None and self.returncode is None:
            pidfd = os.pidfd_open(self.pid)
            try:
                waiting = poll()
                waiting.register(pidfd, POLLIN)
                if not waiting.poll(timeout * 1000):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
            finally:
                os.close(pidfd)
        status = self._reap_child(0)
        assert status is not None  # noqa: S101 - it was waited for
        return status

    def _reap_child(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status, usage = os.wait4(self.pid, options)
            if pid:
                self.returncode, self.usage = os.waitstatus_to_exitcode(status), usage
        return self.returncode


def fork_process(work: Callable[[], object]) -> Forked:
    """Run `work` in a fork of this process; its result and exceptions are discarded.

    Fork only while there is a single thread: a lock held by another thread stays locked in it.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            with suppress(PermissionError):
                os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work()
            os._exit(0)
        finally:  # a child must not unwind into its parent's code
            os._exit(1)
    with suppress(OSError):  # the child was quicker, or is gone
        os.setpgid(pid, pid)
    return Forked(pid)


def program(
    module: str,
    output: int | IO[bytes],
    *,
    variables: Mapping[str, str],
    credentials: bool = False,
    session: bool = True,
) -> tuple["subprocess.Popen[bytes]", Link]:
    """Start `python -m module`; return the process and the link to it.

    `output` is an argument of Popen. It gets the inherited variables and `variables`; with
    `credentials`, all variables. With `session`, the terminal's Ctrl-C does not reach it. Raises
    OSError.
    """
    environment = {**os.environ, **variables} if credentials else select_variables(**variables)
    ours, theirs = make_link_pair()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            stdin=theirs.fileno(), stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=session,
        )  # fmt: skip
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def open_parent_link() -> Link:
    """Return the link to the parent in a program started by `program`; call it first.

    It replaces standard input by the null device.
    """
    die_with_parent(read_parent_pid())
    link = Link(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return link


def read_parent_pid() -> int:
    """Return the process id of the parent of this program."""
    return int(sys.argv[1])
