"""The errors that autopipe raises on purpose, and their exit codes.

* AutopipeError
  - GateError      a check failed: verify, a gate                   exit 1
  - WrongBuildError  outputs of a build are not the model's         exit 1
  - ConfigError    the YAML or the command line is wrong            exit 2
  - ModelError     the model cannot be used                         exit 3
  - TargetError    the target or its device cannot be used          exit 3
  - PackageError   a package is damaged or hostile                  exit 3
  - StageError     a stage failed while running                     exit 4
  - CallLimitError a call reached its limit, or was cancelled       exit 4
  - SetupError     a dependency is missing or does not fit          exit 5
  - StoreError     the store cannot be read or written              exit 5
  - LockError      the lock does not fit, or cannot be read         exit 6

Exit 0 is a finished run; 129, 130 and 143 are SIGHUP, Ctrl-C and SIGTERM. Errors of a disk, a limit
or memory become a StoreError or a SetupError (`host/refusal.py`). Any other exception is a bug in
autopipe: it keeps its traceback and exits 70.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class AutopipeError(Exception):
    """Base of every expected failure; the command line prints it and exits."""

    exit_code: ClassVar[int] = 70


class GateError(AutopipeError):
    """A check failed; nothing is published."""

    exit_code = 1


class WrongBuildError(GateError):
    """Outputs of a build differ from those of the model by more than the tolerance."""


class ConfigError(AutopipeError):
    """The pipeline file or the command line is wrong."""

    exit_code = 2


class ModelError(AutopipeError):
    """The model file cannot be used."""

    exit_code = 3


class TargetError(AutopipeError):
    """The target, or the device behind it, cannot be used."""

    exit_code = 3


class PackageError(AutopipeError):
    """A package is damaged, hostile or made for another machine."""

    exit_code = 3


class StageError(AutopipeError):
    """A stage failed while running; nothing of it is cached."""

    exit_code = 4


class CallLimitError(AutopipeError, TimeoutError):
    """A call reached its time limit or was cancelled; the model can be called again."""

    exit_code = 4


class SetupError(AutopipeError):
    """A dependency is missing, or two of them do not fit each other."""

    exit_code = 5


class StoreError(AutopipeError):
    """The store cannot be read or written."""

    exit_code = 5


class LockError(AutopipeError):
    """The lock is not current, or is damaged."""

    exit_code = 6


@contextmanager
def convert_os_errors(kind: type[AutopipeError], place: object, hint: str = "") -> Iterator[None]:
    """Convert an `OSError` to an error of this kind: the place, the reason, and a hint."""
    try:
        yield
    except OSError as error:
        raise kind(f"{place}: {error.strerror or error}{hint}") from error


def find_first_line(error: BaseException) -> str:
    """Return the first line with text of an error's message, or the name of its type."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
