"""Whose turn it is to time something on this machine: times taken beside each other mean nothing.

Runs of one user take turns, whatever stores they have. The kernel ends the turn of a process that
dies; one that is stopped disturbs nobody, and is passed.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from autopipe.errors import StoreError
from autopipe.processes.lifeline import is_stopped
from autopipe.store import files, locks

_QUIET: Final = 1.0
"""Seconds of waiting that are not worth a word."""

_GLANCE: Final = 0.2
"""Seconds between two looks at who has the turn."""

_LONGEST: Final = 600.0
"""Seconds after which whoever has the turn is passed; the trials of a batch never take as long."""


class TurnTimeout(Exception):  # noqa: N818 - says what happened
    """The time of the run ended while another one was timing."""


class Turn:
    """The turns of one run."""

    def __init__(
        self, warn: Callable[[str], None], waiting: Callable[[], None] | None = None
    ) -> None:
        """Take who is told of a wait, once, and of whom the run does not wait for.

        `waiting` is called a few times a second during a wait.
        """
        self._warn = warn
        self._waiting = waiting
        self.left: Callable[[], float] = lambda: math.inf
        """Returns the seconds that the run has left, those in which it waits among them."""
        self._path = _find_lock_path()
        self._told = False
        self._passed = ""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Time alone while inside, as far as other runs can be kept from it.

        Raises TurnTimeout where the time of this run ends before.
        """
        with ExitStack() as held:
            if self._path is not None:
                self._wait_for_lock(held, self._path)
            yield

    def _wait_for_lock(self, held: ExitStack, path: Path) -> None:
        begun = monotonic()
        while True:
            try:
                held.enter_context(locks.hold_exclusive_lock(path, locks.Patience(seconds=_GLANCE)))
            except StoreError:  # somebody has it
                if self._report_wait(path, monotonic() - begun):
                    return
                if self.left() <= 0:
                    raise TurnTimeout from None
            except OSError:  # it can not be written: nobody else can take turns either
                return
            else:
                return

    def _report_wait(self, path: Path, waited: float) -> bool:
        """Tell of a wait; return whether to wait no more."""
        if self._waiting is not None:
            self._waiting()
        who = locks.describe_holder(path)
        if who == self._passed:
            return True
        if _is_holder_stopped(path) or waited >= _LONGEST:
            self._passed = who
            self._warn(
                f"{who} has kept others from timing on this machine for {waited:.0f} s; times are"
                " now taken beside it: end it if it hangs"
            )
            return True
        if waited >= _QUIET and not self._told:
            self._told = True
            self._warn(f"waiting for {who}, which is timing on this machine")
        return False


def _is_holder_stopped(path: Path) -> bool:
    pid = files.read(path)[:20].decode(errors="replace")
    return pid.isdecimal() and is_stopped(int(pid))


def _find_lock_path() -> Path | None:
    """Return what all runs of this user lock; None where there is no such place."""
    stated = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(stated, "autopipe") if stated else Path(f"/tmp/autopipe-{os.geteuid()}")  # noqa: S108 -- whose it is, is looked at
    return own / "timing" if files.make_own_directory(own) else None
