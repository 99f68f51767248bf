"""Ctrl-C, SIGTERM and SIGHUP as exceptions, and the exit code of a run."""

import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from autopipe.host import refusal

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal ends this process; not an Exception, so that only `main` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted")
        self.exit_code = 128 + number


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise Interrupted at the first signal; the second one ends the process at once.

    An ignored SIGHUP, as under `nohup`, stays ignored.
    """
    before = {
        number: signal.signal(number, _raise_interrupted) for number in _list_handled_signals()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def format_resume_command(arguments: Sequence[str]) -> str:
    """Format the command that resumes an interrupted one."""
    again = "resume with" if arguments[:1] == ["run"] else "again with"
    return f"{again}: {shlex.join(['autopipe', *arguments])}"


def find_exit_code(error: BaseException) -> int:
    """Return the exit code for an error; 70 for a bug."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, Interrupted):
        return error.exit_code
    final_error = refusal.to_final_error(error)
    return 70 if final_error is None else final_error.exit_code


def _list_handled_signals() -> list[signal.Signals]:
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if not (is_ignored and number == signal.SIGHUP)]


def _raise_interrupted(number: int, _frame: FrameType | None) -> None:
    for heard in _list_handled_signals():
        signal.signal(heard, _exit_at_once)
    raise Interrupted(number)


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
