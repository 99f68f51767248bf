"""Faults at the n-th operation on files: a kill, or an error, for n until there is none.

An action runs in a fork, where Python's own files are read and written through `os`, so that each
operation can be counted. SQLite's are its own: there, statements count.

There are hundreds of forks, and one of a process with TVM takes 30 ms. So those that begin with a
template are forks of a small process, which has done the action once and so imported what it takes.
"""

import _pyio  # type: ignore[import-not-found]  # the library in Python, whose calls can be seen
import builtins
import errno
import fcntl
import io
import os
import pickle
import resource
import shutil
import sqlite3
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from autopipe.errors import AutopipeError

ROOT = Path(__file__).parents[2]

CHANGES = (
    "chmod", "fsync", "ftruncate", "mkdir", "open", "pwrite", "remove", "rename", "replace",
    "rmdir", "sendfile", "unlink", "utime", "write",
)  # fmt: skip
LOOKS = ("listdir", "lstat", "pread", "read", "scandir", "stat")
CODES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE)

KILLED = 137
MOST = 2000
"""Operations after which an action is taken to be endless."""

Action = Callable[[Path], object]
"""Does something below a folder; what it does elsewhere is not counted. It can be pickled."""

Limit = Callable[[], None]
"""Limits what this process may use."""


@dataclass(frozen=True)
class Outcome:
    """How an action ended, after a fault before its n-th operation."""

    n: int
    folder: Path
    """Where it happened."""
    code: int
    """Exit code; 0 if there were fewer than n operations, or the fault did no harm."""
    said: str
    """What it raised."""
    reached: bool
    """Whether there was an n-th operation."""


def kills(folder: Path, action: Action, template: Path | None = None) -> Iterator[Outcome]:
    """Kill the action before each operation that changes something, until it ends by itself.

    Each time it finds a fresh copy of `template`.
    """
    for n in range(1, MOST):
        outcome = _attempt(n, folder / f"{n}", action, template, kill)
        assert outcome.code == (KILLED if outcome.reached else 0), outcome
        yield outcome
        if not outcome.reached:
            return
    raise AssertionError("the action does not end")


def errors(
    folder: Path, action: Action, template: Path | None = None, *, turn: int = 0
) -> Iterator[Outcome]:
    """Have each operation fail, with the errors of `CODES` in turn, the first of them at `turn`.

    A full disk stays full; the others pass.
    """
    for n in range(1, MOST):
        code = CODES[(n + turn) % len(CODES)]
        outcome = _attempt(n, folder / f"{n}", action, template, refusal(code))
        assert outcome.code != 70, f"{os.strerror(code)}, {n}: {outcome.said}"
        yield outcome
        if not outcome.reached:
            return
    raise AssertionError("the action does not end")


def limits(
    folder: Path, action: Action, template: Path | None = None, *, step: int = 4096
) -> Iterator[Outcome]:
    """Let no file grow beyond a limit, one `step` more each time, until the action ends well.

    This is for SQLite, whose operations can not be counted.
    """
    return _until_well(folder, action, template, step, no_larger)


def descriptors(folder: Path, action: Action, template: Path | None = None) -> Iterator[Outcome]:
    """Let no files be opened, then one at a time, two, and so on, until the action ends well."""
    return _until_well(folder, action, template, 1, no_more)


def _until_well(
    folder: Path, action: Action, template: Path | None, step: int, limit: Callable[[int], None]
) -> Iterator[Outcome]:
    for n in range(0, MOST * step, step):
        outcome = _attempt(n, folder / f"{n}", action, template, partial(limit, n))
        assert outcome.code != 70, f"{n}: {outcome.said}"
        yield outcome
        if outcome.code == 0:
            return
    raise AssertionError("the action does not end")


def no_larger(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def no_more(count: int) -> None:
    """Take all descriptors but so many."""
    while (highest := os.dup(0)) < 100:
        pass
    limit = highest + 1 + count
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


@dataclass(frozen=True)
class Fault:
    """What happens to an operation."""

    operations: tuple[str, ...]
    strike: Callable[..., None]
    stays: bool
    """Whether it happens to all that follow as well."""


def _die(*_: Any) -> None:
    os._exit(KILLED)


kill = Fault(CHANGES, _die, stays=False)


def _refuse(code: int, *args: Any) -> None:
    path = args[0] if args and isinstance(args[0], str | os.PathLike) else None
    number = errno.EIO if path is None and code not in {errno.ENOSPC, errno.EIO} else code
    raise OSError(number, os.strerror(number), path)


def refusal(code: int) -> Fault:
    return Fault((*CHANGES, *LOOKS), partial(_refuse, code), stays=code == errno.ENOSPC)


def _attempt(
    n: int, folder: Path, action: Action, template: Path | None, fault: Fault | Limit
) -> Outcome:
    if template is None:
        return _try(n, folder, action, template, fault)
    small = _small()
    assert small.stdin is not None
    assert small.stdout is not None
    pickle.dump((n, folder, action, template, fault), small.stdin)
    small.stdin.flush()
    outcome: Outcome = pickle.load(small.stdout)
    return outcome


@cache
def _small() -> "subprocess.Popen[bytes]":
    """Return the small process of this one; `end` ends it."""
    begin = "from tests.pipeline.crashes import serve; serve()"
    return subprocess.Popen(
        [sys.executable, "-c", begin], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def end() -> None:
    """End the small process, if there is one."""
    if not _small.cache_info().currsize:
        return
    small = _small()
    for pipe in (small.stdin, small.stdout):
        assert pipe is not None
        pipe.close()
    small.wait()
    _small.cache_clear()


def used() -> float:
    """Return the seconds of processor time of the small process, and of its forks."""
    if not _small.cache_info().currsize:
        return 0.0
    return float(sum(psutil.Process(_small().pid).cpu_times()[:4]))


def serve() -> None:
    """Be the small process: make the attempts that are asked for, each action once without fault.

    What is read here is written by `_attempt`.
    """
    asked, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    known: set[Action] = set()
    while asked.peek():
        n, folder, action, template, fault = pickle.load(asked)
        if action not in known:
            rehearsal = Path(shutil.copytree(template, folder.with_name("rehearsal")))
            action(rehearsal)
            shutil.rmtree(rehearsal)
            known.add(action)
        pickle.dump(_try(n, folder, action, template, fault), told)
        told.flush()


def _try(
    n: int, folder: Path, action: Action, template: Path | None, fault: Fault | Limit
) -> Outcome:
    if template is None:
        folder.mkdir()
    else:
        shutil.copytree(template, folder, symlinks=True)
    read, write = os.pipe()
    with warnings.catch_warnings():  # numpy, where another test has imported it, has threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _child(n, folder, action, fault, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        mark, _, said = pipe.read().partition("\n")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Outcome(n, folder, code, said, reached=mark == "reached")


def _child(n: int, folder: Path, action: Action, fault: Fault | Limit, pipe: int) -> None:
    tell, code, said = os.write, 99, ""
    try:
        if isinstance(fault, Fault):
            _arm(n, folder, fault, lambda: tell(pipe, b"reached"))
        else:
            fault()
        action(folder)
        code = 0
    except AutopipeError as error:
        code, said = error.exit_code, str(error)
    except BaseException:  # noqa: BLE001
        code, said = 70, traceback.format_exc()
    finally:
        tell(pipe, f"\n{said}".encode())
        os._exit(code)


def _arm(n: int, folder: Path, fault: Fault, reached: Callable[[], object]) -> None:
    count = 0

    def step(*args: Any) -> None:
        nonlocal count
        if _elsewhere(folder, *args):
            return
        count += 1
        if count == n:
            reached()
        if count == n or (fault.stays and count > n):
            fault.strike(*args)

    def wrap(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            step(*args)
            return original(*args, **kwargs)

        setattr(module, name, counted)

    for name in fault.operations:
        wrap(os, name)
    if fault != kill:
        wrap(fcntl, "flock")
    vars(io)["open"] = vars(builtins)["open"] = _pyio.open
    if fault == kill:  # an exception in there would be passed over
        _count_statements(step)


def _count_statements(step: Callable[[], None]) -> None:
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(lambda _: step())
        return connection

    vars(sqlite3)["connect"] = traced


def _elsewhere(folder: Path, *args: Any) -> bool:
    """Return whether an operation is on a path that is known to lead elsewhere."""
    if not args or not isinstance(args[0], str | os.PathLike):
        return False
    path = Path(args[0])
    return path.is_absolute() and not path.is_relative_to(folder)
