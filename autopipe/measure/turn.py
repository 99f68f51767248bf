"""Serialize timing on this machine by a lock: simultaneous measurements are meaningless.

Runs of one user take turns, even with different stores. The kernel releases the lock of a process
that dies; a stopped process disturbs no measurement, and is ignored.
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
"""Seconds of waiting without a warning."""

_GLANCE: Final = 0.2
"""Seconds between two attempts to take the lock."""

_MAX_WAIT_SECONDS: Final = 600.0
"""Seconds after which the holder is ignored; the trials of a batch never take as long."""


class TurnTimeout(Exception):  # noqa: N818 - says what happened
    """The time budget of the run ended while another one was timing."""


class Turn:
    """Takes turns for one run."""

    def __init__(
        self, warn: Callable[[str], None], waiting: Callable[[], None] | None = None
    ) -> None:
        """Set the receiver of warnings about a wait, and about a holder that is ignored.

        `waiting` is called a few times a second during a wait.
        """
        self._warn = warn
        self._waiting = waiting
        self.left: Callable[[], float] = lambda: math.inf
        """Returns the remaining seconds of the run, including its waits."""
        self.settle: Callable[[], None] = lambda: None
        """Called before each turn: waits until the rest of the run leaves the machine idle."""
        self._path = _find_lock_path()
        self._told = False
        self._passed = ""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the timing lock inside the block, as far as other runs respect it.

        Raises TurnTimeout where the time budget of this run ends before.
        """
        self.settle()
        with ExitStack() as stack:
            if self._path is not None:
                self._wait_for_lock(stack, self._path)
            yield

    def _wait_for_lock(self, stack: ExitStack, path: Path) -> None:
        start = monotonic()
        while True:
            try:
                stack.enter_context(
                    locks.hold_exclusive_lock(path, locks.Patience(seconds=_GLANCE))
                )
            except StoreError:  # another run has it
                if self._report_wait(path, monotonic() - start):
                    return
                if self.left() <= 0:
                    raise TurnTimeout from None
            except OSError:  # it cannot be written: no other run can take turns either
                return
            else:
                return

    def _report_wait(self, path: Path, seconds: float) -> bool:
        """Report a wait; return whether to stop waiting."""
        if self._waiting is not None:
            self._waiting()
        holder = locks.describe_holder(path)
        if holder == self._passed:
            return True
        if _is_holder_stopped(path) or seconds >= _MAX_WAIT_SECONDS:
            self._passed = holder
            self._warn(
                f"{holder} has kept others from timing on this machine for {seconds:.0f} s; times"
                " are now taken beside it: end it if it hangs"
            )
            return True
        if seconds >= _QUIET and not self._told:
            self._told = True
            self._warn(f"waiting for {holder}, which is timing on this machine")
        return False


def _is_holder_stopped(path: Path) -> bool:
    pid = files.read(path)[:20].decode(errors="replace")
    return pid.isdecimal() and is_stopped(int(pid))


def _find_lock_path() -> Path | None:
    """Return the lock file of all runs of this user; None where there is no private folder."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base, "autopipe") if base else Path(f"/tmp/autopipe-{os.geteuid()}")  # noqa: S108 -- its owner is checked
    return folder / "timing" if files.make_own_directory(folder) else None
