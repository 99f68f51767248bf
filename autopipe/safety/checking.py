"""Makes the checks of schedules in children, which a wrong schedule may end."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from autopipe.errors import StoreError
from autopipe.measure import device
from autopipe.pipeline.counted import Watch
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How, describe_garbled
from autopipe.safety.job import Piece, can_bound_memory, check_plain_loops, do
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions

_MOST_CHECKS: Final = 32
"""Checks of one child: what each of them leaves in its memory adds up."""


class Postponed(Failed):
    """There was no time for a check, or not enough; the schedule is not to blame."""

    def __init__(self, *, begun: bool) -> None:
        """Take whether it was begun, and took longer than it may."""
        super().__init__(Failure(How.HUNG, "there was no time for its check"))
        self.begun = begun


Outcome = Checked | Failed | StoreError
"""What a check has found, how it failed, or what a disk or a limit refused."""


class Checker:
    """Checks schedules for the target of some conditions, as many at a time as it has cores."""

    def __init__(
        self,
        conditions: Conditions,
        patience: Callable[[], float] = lambda: math.inf,
        watch: Watch | None = None,
    ) -> None:
        """Start nothing yet. Raises SetupError where compiler or driver of a GPU are missing.

        `patience` returns the seconds that a check which begins now may take: one that takes
        longer is no failure but postponed. `watch` counts the checks.
        """
        device.prepare_forks(conditions.target)
        self._conditions = conditions
        self._patience = patience
        self._watch = watch

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Return what came of the check of each piece."""
        found: list[Outcome] = []
        cores = self._conditions.hardware.cores
        free = deque(_CheckingChild(pieces, self._conditions) for _ in pieces[:cores])
        running: deque[_CheckingChild] = deque()
        with ExitStack() as open_ones:
            for worker in free:
                open_ones.enter_context(worker.child)
            for place, _ in enumerate(self._report_progress(pieces)):
                if not free:
                    free.append(running.popleft())
                    found.append(free[0].answer())
                seconds = min(contained.SECONDS, self._patience())
                if seconds <= 0:
                    break
                running.append(free.popleft())
                running[-1].begin(place, seconds)
            found += [worker.answer() for worker in running]
        return found + [Postponed(begun=False) for _ in pieces[len(found) :]]

    def _report_progress(self, pieces: Sequence[Piece]) -> Iterable[Piece]:
        return pieces if self._watch is None else self._watch.each("schedules checked", pieces)

    def plain_runs(self, piece: Piece) -> bool:
        """Tell whether the plain loops of a piece can be run, and agree with themselves."""
        with Child(lambda: lambda _: check_plain_loops(piece, self._conditions)) as child:
            child.tell()
            found = _read_outcome(child)
        return isinstance(found, Checked) and found.finding is Finding.RIGHT


class _CheckingChild:
    """A child that checks one piece after the other, as long as nothing is wrong with them.

    To start one and to make its first machine code takes as long as a check.
    """

    def __init__(self, pieces: Sequence[Piece], conditions: Conditions) -> None:
        limited = all(can_bound_memory(piece, conditions) for piece in pieces)
        self.child = Child(lambda: lambda place: do(pieces[place], conditions), bounded=limited)
        self._place = 0
        self._checks = 0
        """How many the process of the child has made."""

    def begin(self, place: int, seconds: float) -> None:
        """Have the child begin with the piece at a place."""
        self._place, self.child.seconds = place, seconds
        self.child.tell(place)

    def answer(self) -> Outcome:
        """Return what came of it. What another check may have spoiled is done again, alone."""
        outcome, is_first = _read_outcome(self.child), not self._checks
        self._checks += 1
        is_right = isinstance(outcome, Checked) and outcome.finding is Finding.RIGHT
        if is_right and self._checks < _MOST_CHECKS:
            return outcome
        self.child.close()
        self._checks = 0
        if is_right or is_first or isinstance(outcome, Postponed | StoreError):
            return outcome
        self.child.tell(self._place)
        return self.answer()


def _read_outcome(child: Child) -> Outcome:
    """Return what a child answers; one that had less than the usual time is not to blame."""
    try:
        return Checked.of(child.answer())
    except Failed as error:
        late = error.how is How.HUNG and child.seconds < contained.SECONDS
        return Postponed(begun=True) if late else error
    except StoreError as error:
        return error
    except (ValueError, TypeError, LookupError):  # what it checks may have it say anything
        return Failed(describe_garbled())
