"""Makes the checks of schedules, each in a child of its own."""

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack

from autopipe.errors import StoreError
from autopipe.measure import device
from autopipe.processes.contained import SECONDS, Child, Failed
from autopipe.processes.failure import How, garbled
from autopipe.safety.job import Piece, bounded, do, plain_runs
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions

Outcome = Checked | Failed | StoreError
"""What a check has found, how it failed, or what a disk or a limit refused."""


class Checker:
    """Checks schedules for the target of some conditions, as many at a time as it has cores."""

    def __init__(self, conditions: Conditions, patience: float | None = None) -> None:
        """Start nothing yet. Raises SetupError where compiler or driver of a GPU are missing.

        With `patience`, a check that takes longer, in seconds, is no failure but given up.
        """
        device.prepare_forks(conditions.target)
        self._conditions = conditions
        self.patience = patience

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Return what came of the check of each piece."""
        found: list[Outcome] = []
        running: deque[Child] = deque()
        with ExitStack() as open_ones:
            for piece in pieces:
                if len(running) == self._conditions.hardware.cores:
                    found.append(_outcome(running.popleft()))
                running.append(open_ones.enter_context(self._child(piece)))
                running[-1].tell()
            found += [_outcome(child) for child in running]
        return found

    def lost_patience(self, outcome: Outcome) -> bool:
        """Tell whether a check was given up because time is short."""
        hung = isinstance(outcome, Failed) and outcome.how is How.HUNG
        return hung and self.patience is not None and self.patience < SECONDS

    def plain_runs(self, piece: Piece) -> bool:
        """Tell whether the plain loops of a piece can be run, and agree with themselves."""
        with Child(lambda: lambda _: plain_runs(piece, self._conditions)) as child:
            child.tell()
            found = _outcome(child)
        return isinstance(found, Checked) and found.finding is Finding.RIGHT

    def _child(self, piece: Piece) -> Child:
        limited = bounded(piece, self._conditions)
        seconds = None if self.patience is None else min(self.patience, SECONDS)
        return Child(
            lambda: lambda _: do(piece, self._conditions), seconds=seconds, bounded=limited
        )


def _outcome(child: Child) -> Outcome:
    """Return what a child answers, and end it."""
    try:
        return Checked.of(child.answer())
    except (Failed, StoreError) as error:
        return error
    except (ValueError, TypeError, LookupError):  # what it checks may have it say anything
        return Failed(garbled())
    finally:
        child.close()
