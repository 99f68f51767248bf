"""Checks schedules in child processes, which a wrong schedule may crash."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from autopipe.errors import StoreError
from autopipe.host.memory import keep_freed_memory
from autopipe.measure import device
from autopipe.pipeline.counted import Watch
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How, describe_garbled
from autopipe.safety.job import Piece, can_bound_memory, check_plain_loops, do
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions

_MOST_CHECKS: Final = 32
"""Maximum number of checks in one child, whose memory grows with each."""


class Postponed(Failed):
    """A check did not run, or did not end, for lack of time; the schedule may be right."""

    def __init__(self, *, begun: bool) -> None:
        """Set whether the check began and exceeded its time limit."""
        super().__init__(Failure(How.HUNG, "there was no time for its check"))
        self.begun = begun


Outcome = Checked | Failed | StoreError
"""The result of a check, its failure, or an error of the disk or of a limit."""


class Checker:
    """Checks schedules for the target of some conditions, in parallel on all cores."""

    def __init__(
        self,
        conditions: Conditions,
        patience: Callable[[], float] = lambda: math.inf,
        watch: Watch | None = None,
    ) -> None:
        """Configure the checker without starting it. Raises SetupError without GPU tools.

        `patience` returns the time limit in seconds of a check that begins now: one that exceeds
        it is postponed, which is no failure. `watch` counts the checks.
        """
        device.prepare_forks(conditions.target)
        self._conditions = conditions
        self._patience = patience
        self._watch = watch

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Check each piece; return the outcomes in order."""
        outcomes: list[Outcome] = []
        cores = self._conditions.hardware.cores
        free = deque(_CheckingChild(pieces, self._conditions) for _ in pieces[:cores])
        running: deque[_CheckingChild] = deque()
        with ExitStack() as open_ones:
            for worker in free:
                open_ones.enter_context(worker.child)
            for place, _ in enumerate(self._report_progress(pieces)):
                if not free:
                    free.append(running.popleft())
                    outcomes.append(free[0].answer())
                seconds = min(contained.SECONDS, self._patience())
                if seconds <= 0:
                    break
                running.append(free.popleft())
                running[-1].begin(place, seconds)
            outcomes += [worker.answer() for worker in running]
        return outcomes + [Postponed(begun=False) for _ in pieces[len(outcomes) :]]

    def _report_progress(self, pieces: Sequence[Piece]) -> Iterable[Piece]:
        return pieces if self._watch is None else self._watch.each("schedules checked", pieces)

    def plain_runs(self, piece: Piece) -> bool:
        """Return whether the plain loops of a piece run, and agree with themselves."""
        with Child(lambda: lambda _: check_plain_loops(piece, self._conditions)) as child:
            child.tell()
            outcome = _read_outcome(child)
        return isinstance(outcome, Checked) and outcome.finding is Finding.RIGHT


class _CheckingChild:
    """A child process that checks pieces one after the other, until one of them fails.

    Starting a child and compiling its first code takes as long as a check.
    """

    def __init__(self, pieces: Sequence[Piece], conditions: Conditions) -> None:
        is_bounded = all(can_bound_memory(piece, conditions) for piece in pieces)

        def begin() -> Callable[[int], object]:
            keep_freed_memory()
            return lambda place: do(pieces[place], conditions)

        self.child = Child(begin, bounded=is_bounded)
        self._place = 0
        self._checks = 0
        """Number of checks that the present process has made."""

    def begin(self, place: int, seconds: float) -> None:
        """Start the check of the piece at a position."""
        self._place, self.child.seconds = place, seconds
        self.child.tell(place)

    def answer(self) -> Outcome:
        """Return the outcome. A failure after other checks is repeated in a new process."""
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
    """Read the outcome from a child; a timeout below the usual limit counts as postponed."""
    try:
        return Checked.of(child.answer())
    except Failed as error:
        late = error.how is How.HUNG and child.seconds < contained.SECONDS
        return Postponed(begun=True) if late else error
    except StoreError as error:
        return error
    except (ValueError, TypeError, LookupError):  # the checked code may corrupt the answer
        return Failed(describe_garbled())
