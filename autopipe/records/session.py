"""The journal of a tuning session, so that a resumed run spends the rest of its budget."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final

from autopipe.pipeline.attempt import SESSION, SpentBudget, read_spent_budget
from autopipe.store import files

_SIZE: Final = 256
"""Bytes of the journal. It is written over in place: a sector of a disk changes whole."""

_TICK: Final = 1.0
"""Seconds of the budget that a kill may give back, at most."""


@dataclass(slots=True)
class Session:
    """A tuning session, which interruptions do not end."""

    path: Path
    name: str
    """Marks its records in the store."""
    spent: float
    """Seconds that earlier, interrupted runs took."""
    started: float
    """When this run began, by the monotonic clock."""
    budget: int
    """Trials that it may make."""
    trials: int = 0
    """Trials that are on the disk, at first as many as earlier runs have noted."""

    @classmethod
    def resume(cls, folder: Path, budget: int = 0) -> "Session":
        """Resume the session journaled in the folder, or begin one."""
        spent = read_spent_budget(folder) or SpentBudget(
            session=secrets.token_hex(8), seconds=0.0, trials=0, budget=budget
        )
        session = cls(
            folder / SESSION, spent.session, spent.seconds, monotonic(), budget, spent.trials
        )
        files.replace(session.path, session._encode_journal(), folder)
        return session

    @property
    def elapsed(self) -> float:
        """Seconds this session has taken, all its runs together."""
        return self.spent + monotonic() - self.started

    def save(self, *, durably: bool = True) -> None:
        """Write down how far the session has come; a kill loses it never, a power failure may."""
        with self.path.open("r+b", buffering=0) as file:
            file.write(self._encode_journal())
            if durably:
                os.fdatasync(file.fileno())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Write down the time every second inside, whatever this process is busy with."""
        owner = os.getpid()

        def tick(_number: int, _frame: FrameType | None) -> None:
            if os.getpid() == owner:  # not in a child that was forked meanwhile
                with suppress(OSError):  # writing records reports a full disk
                    self.save()

        before = signal.signal(signal.SIGALRM, tick)
        signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003 -- native code goes on
        signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def forget(self) -> None:
        """End the session; the next run begins another one."""
        self.path.unlink(missing_ok=True)

    def _encode_journal(self) -> bytes:
        spent = SpentBudget(
            session=self.name, seconds=round(self.elapsed, 3), trials=self.trials,
            budget=self.budget,
        )  # fmt: skip
        return spent.model_dump_json().ljust(_SIZE).encode()
