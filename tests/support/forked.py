"""A command line in a fork of this process, which has imported already what it takes.

It is a process of its own, whose variables, folder, output and exit code are its own, and so is
the one that forks its stages. What an interpreter does as it starts and ends is not in them: that
takes a program.
"""

import faulthandler
import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from autopipe.pipeline import isolate
from autopipe.processes.ending import end_process
from autopipe.processes.link import Link, make_link_pair
from autopipe.processes.start import fork_process
from autopipe.processes.variables import select_variables

PATIENCE = 30.0
"""Seconds that what a command has forked has to end."""
LONGEST = 120.0
"""Seconds that a command may take, as a program that a test starts."""


def run(
    main: Callable[[], object], arguments: tuple[object, ...], cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `main` as `subprocess.run` would run a program; what it prints is text.

    Fails if forks of it are left: they have no variables by which `no_leaks` could know them.
    """
    words = [str(each) for each in arguments]
    with none_left(), tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            child = fork_process(lambda: _work(main, words, cwd, env, (out, err)))
        try:
            status = child.wait(LONGEST)
        except subprocess.TimeoutExpired:
            end_process(child)
            raise
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess(words, status, *told)


@contextmanager
def none_left() -> Iterator[None]:
    """Fail if forks of this process are left that begin here, or forks of these."""
    mark, held = os.pipe()
    try:
        yield
    finally:
        os.close(held)
        left = _left(mark)
    assert left == [], "processes outlive the command"


def _left(mark: int) -> list[str]:
    """End what still holds the other end of a pipe, and close this one; return their numbers."""
    ended = select.poll()
    ended.register(mark, 0)
    found: list[str] = []
    if not ended.poll(PATIENCE * 1000):
        name = f"pipe:[{os.fstat(mark).st_ino}]"
        for path in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if str(path.readlink()) == name and path.parts[2] != str(os.getpid()):
                    found.append(path.parts[2])
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
    os.close(mark)
    return found


def program(
    module: str,
    output: int | IO[bytes],
    *,
    variables: Mapping[str, str],
    credentials: bool = False,
    session: bool = True,
) -> tuple[Any, Link]:
    """Take the place of `processes.start.program`: be a fork, too, that has imported much."""
    ours, theirs = make_link_pair()
    printed, prints = os.pipe()
    parent = os.getpid()
    environment = {**os.environ, **variables} if credentials else select_variables(**variables)

    def work() -> None:
        os.close(printed)
        ours.close()
        os.dup2(theirs.fileno(), 0)
        for number in (1, 2):
            os.dup2(prints if output == subprocess.PIPE else os.open(os.devnull, os.O_RDWR), number)
        faulthandler.disable()
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        sys.argv = [module, str(parent)]
        import_module(module).main()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        process: Any = fork_process(work)
    theirs.close()
    os.close(prints)
    if output == subprocess.PIPE:
        process.stdout = os.fdopen(printed, "rb")
    else:
        os.close(printed)
    return process, ours


def _work(
    main: Callable[[], object],
    words: list[str],
    cwd: Path,
    env: Mapping[str, str],
    output: tuple[IO[bytes], IO[bytes]],
) -> None:
    gc.freeze()  # what other tests have left would say so here as it is collected
    with Path(os.devnull).open("rb") as nothing:
        for number, file in enumerate((nothing, *output)):
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - streams
        for number, mode in enumerate("rww")
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    vars(isolate)["program"] = program
    faulthandler.disable()
    sys.argv = ["autopipe", *words]
    warnings.resetwarnings()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as an interpreter shows it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
