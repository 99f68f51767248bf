"""Measures a package with the program of its exported folder."""

import errno
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autopipe.compiler.target import cpu
from autopipe.errors import ConfigError, PackageError
from autopipe.export.folder import export_package
from autopipe.packaging.contents import opened
from autopipe.processes.variables import select_variables

_INVALID_REQUEST = 2
"""Exit code of the program for an option or input that does not fit."""


def bench_package(package: Path, options: Sequence[str]) -> str:
    """Run `bin/run --bench` of a folder, or of a package that is exported first; return its output.

    Raises ConfigError for options that do not fit the model, PackageError if it cannot run, and
    the errors of `export_package`.
    """
    if package.is_dir():
        return _run_program(package, options)
    with opened(package) as contents:
        processor = contents.manifest.needs.processor
    if processor.machine != (architecture := cpu.find_architecture({})):
        raise PackageError(
            f"{package}: built for {processor.machine}, this machine is {architecture}"
        )
    with tempfile.TemporaryDirectory(prefix="autopipe-") as work:
        return _run_program(export_package(package, Path(work, "model")), options)


def _run_program(folder: Path, options: Sequence[str]) -> str:
    command = [str(folder.absolute() / "bin" / "run"), "--bench", *options]
    try:
        completed = subprocess.run(  # noqa: S603 - the program of a folder that the user names
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env=select_variables(), errors="replace",
        )  # fmt: skip
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            raise PackageError(f"{folder}: exported for another kind of machine") from None
        raise PackageError(f"{folder}: not a folder of `autopipe export`: {error}") from None
    if completed.returncode:
        lines = completed.stderr.strip().splitlines()
        reason = lines[0].removeprefix("error: ") if lines else f"ended with {completed.returncode}"
        raise (ConfigError if completed.returncode == _INVALID_REQUEST else PackageError)(reason)
    return completed.stdout
