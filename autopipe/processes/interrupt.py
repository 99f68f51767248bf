"""Ctrl-C, SIGTERM and SIGHUP as exceptions, and the exit code of whatever ends a run."""

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
    """Somebody wants this process to end; not an error, so nothing but `main` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted")
        self.exit_code = 128 + number


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise Interrupted at the first signal inside; the second ends the process at once.

    A SIGHUP that is ignored, as below `nohup`, stays so.
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
    """Say how to go on with the command that was interrupted; nothing of a run has to be undone."""
    again = "resume with" if arguments[:1] == ["run"] else "again with"
    return f"{again}: {shlex.join(['autopipe', *arguments])}"


def find_exit_code(error: BaseException) -> int:
    """Return the exit code a command ends with; 70 for a bug."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, Interrupted):
        return error.exit_code
    found = refusal.to_final_error(error)
    return 70 if found is None else found.exit_code


def _list_handled_signals() -> list[signal.Signals]:
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if not (ignored and number == signal.SIGHUP)]


def _raise_interrupted(number: int, _frame: FrameType | None) -> None:
    for heard in _list_handled_signals():
        signal.signal(heard, _exit_at_once)
    raise Interrupted(number)


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
