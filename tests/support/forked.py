"""A command line in a fork of this process, which has imported already what it takes.

It is a process of its own, whose variables, folder, output and exit code are its own. What an
interpreter does as it starts and ends is not in it: that takes a program.
"""

import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from autopipe.processes.start import fork


def run(
    main: Callable[[], object], arguments: tuple[object, ...], cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `main` as `subprocess.run` would run a program; what it prints is text."""
    words = [str(each) for each in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            child = fork(lambda: _work(main, words, cwd, env, (out, err)))
        status = child.wait()
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess(words, status, *told)


def _work(
    main: Callable[[], object],
    words: list[str],
    cwd: Path,
    env: Mapping[str, str],
    output: tuple[IO[bytes], IO[bytes]],
) -> None:
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
