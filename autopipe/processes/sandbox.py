"""Work on an untrusted file in a child process that may crash, hang or hoard memory alone.

Where the kernel has seccomp the child can start no process, write no file and open no connection.
"""

import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from autopipe.errors import AutopipeError, ConfigError, ModelError
from autopipe.host import refusal
from autopipe.processes.lifeline import die_with_parent
from autopipe.processes.seccomp import confine

_ERRORS: dict[str, type[AutopipeError]] = {"ConfigError": ConfigError, "ModelError": ModelError}


_PIPE: Final = 3
"""Where a child answers; all after it is closed."""

_DONE: Final = "done "
_LONGEST: Final = 60_000
"""Bytes of an error."""

_ANSWER: Final = 2**30
"""Bytes of an answer; what is checked here is no weights."""


def contained(work: Callable[[], str | None], *, memory: int, seconds: int) -> str:
    """Return what `work` returns in a forked child, limited to `memory` bytes beyond this one.

    Raises the `AutopipeError` that `work` raised; every other bad end is a `ModelError`.
    """
    read, write = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; the child waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(work, write, parent, memory, seconds)
    os.close(write)
    answer = None
    try:
        answer = _receive(read, time.monotonic() + 2 * seconds)
    finally:
        os.close(read)
        if answer is None:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return _judge(answer, status, seconds)


def _child(
    work: Callable[[], str | None], write: int, parent: int, memory: int, seconds: int
) -> NoReturn:
    try:
        os.dup2(write, _PIPE)
        rest = memoryview(_answer(work, parent, memory, seconds).encode(errors="replace"))
        while rest:
            rest = rest[os.write(_PIPE, rest) :]
    finally:
        os._exit(0)  # whatever was raised, a child must not unwind into its parent's code


def _answer(work: Callable[[], str | None], parent: int, memory: int, seconds: int) -> str:
    """Do the work within limits and return how it went: `done`, or an error's name and text."""
    try:
        _limited(parent, memory, seconds)
        return f"{_DONE}{work() or ''}"
    except MemoryError:
        return f"ModelError the model needs more than {memory >> 20} MiB to be checked"
    except AutopipeError as error:
        return f"{type(error).__name__} {error}"[:_LONGEST]
    except Exception as error:  # noqa: BLE001  what a hostile file sets off in a parser
        reason = f"{type(error).__name__}: {error}"
        if refusal.hunger(reason):
            return f"ModelError the model needs more than {memory >> 20} MiB to be checked"
        return f"ModelError the model can not be checked: {reason}"[:_LONGEST]


def _limited(parent: int, memory: int, seconds: int) -> None:
    die_with_parent(parent)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.closerange(_PIPE + 1, os.sysconf("SC_OPEN_MAX"))  # nobody else's file or socket stays open
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory)
    _limit(resource.RLIMIT_CPU, seconds)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)  # what is left where there is no seccomp
    confine()


def _limit(kind: int, value: int) -> None:
    """Lower a resource limit of this process; one that is already lower stays."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, hard))


def _receive(read: int, deadline: float) -> str | None:
    """Read all the child says; None where it has not ended by the deadline."""
    chunks: list[bytes] = []
    size = 0
    while (left := deadline - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0]:
            chunk = os.read(read, 65536)
            if not chunk:
                return b"".join(chunks).decode(errors="replace")
            chunks.append(chunk)
            size += len(chunk)
            if size > _ANSWER:
                break
    return None


def _judge(answer: str | None, status: int, seconds: int) -> str:
    if answer is not None and answer.startswith(_DONE):
        return answer.removeprefix(_DONE)
    if answer:
        name, _, message = answer.partition(" ")
        raise _ERRORS.get(name, ModelError)(message)
    if answer is None or os.WTERMSIG(status) == signal.SIGXCPU:
        raise ModelError(f"the model takes longer than {seconds} s to be checked")
    end = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"
    raise ModelError(f"checking the model crashed ({end})")
