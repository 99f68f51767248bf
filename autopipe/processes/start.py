"""Starts children: a fork of this process, or a program of ours that begins anew.

Both end with this process. A fork has a process group of its own, so that it can be ended with all
that it has started, and writes no core. A program gets only the variables that it needs, and talks
over its standard input: whatever it prints, it never mixes with what it says.
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
    """A fork of this process, with as much of the face of `subprocess.Popen` as ending it takes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """Its exit status, negative for a signal; null as long as that is not known."""
        self.usage: resource.struct_rusage
        """What it took; there once it has ended."""

    def poll(self) -> int | None:
        """Return its exit status, if it has ended."""
        return self._reap_child(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status once it has ended. Raises TimeoutExpired."""
        if timeout is not None and self.returncode is None:
            ended = os.pidfd_open(self.pid)
            try:
                waiting = poll()
                waiting.register(ended, POLLIN)
                if not waiting.poll(timeout * 1000):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
            finally:
                os.close(ended)
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
    """Have a fork of this process do some work; what it raises, and what it returns, is lost.

    Fork only while there is a single thread: a lock that another one holds stays locked there.
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
        finally:  # whatever was raised: a child must not unwind into its parent's code
            os._exit(1)
    with suppress(OSError):  # the child was quicker, or is gone
        os.setpgid(pid, pid)
    return Forked(pid)


def program(
    module: str,
    output: int | IO[bytes],
    *,
    more: Mapping[str, str],
    credentials: bool = False,
    session: bool = True,
) -> tuple["subprocess.Popen[bytes]", Link]:
    """Start `python -m module` and return it, with what it is talked to over.

    It prints to `output`, as Popen takes it. It gets the variables that all get who work on models,
    and `more`; all there are only if it needs `credentials`. In a session of its own it is out of
    reach of the terminal's Ctrl-C. Raises OSError.
    """
    environment = {**os.environ, **more} if credentials else select_variables(**more)
    ours, theirs = make_link_pair()
    try:
        started = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            stdin=theirs.fileno(), stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=session,
        )  # fmt: skip
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return started, ours


def open_parent_link() -> Link:
    """Return what a program that `program` has started is talked to over; its first line.

    From then on it reads nothing from standard input.
    """
    die_with_parent(read_parent_pid())
    link = Link(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return link


def read_parent_pid() -> int:
    """Return the process that has started this program."""
    return int(sys.argv[1])
