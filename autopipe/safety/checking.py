"""Makes the checks of schedules, each in a child of its own."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from autopipe.errors import StoreError
from autopipe.measure import device
from autopipe.pipeline.counted import Watch
from autopipe.processes.contained import SECONDS, Child, Failed
from autopipe.processes.failure import Failure, How, garbled
from autopipe.safety.job import Piece, bounded, do, plain_runs
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions


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
        running: deque[tuple[Child, float]] = deque()
        with ExitStack() as open_ones:
            for piece in self._counted(pieces):
                if len(running) == self._conditions.hardware.cores:
                    found.append(_outcome(*running.popleft()))
                seconds = min(SECONDS, self._patience())
                if seconds <= 0:
                    break
                running.append((open_ones.enter_context(self._child(piece, seconds)), seconds))
                running[-1][0].tell()
            found += [_outcome(*each) for each in running]
        return found + [Postponed(begun=False) for _ in pieces[len(found) :]]

    def _counted(self, pieces: Sequence[Piece]) -> Iterable[Piece]:
        return pieces if self._watch is None else self._watch.each("schedules checked", pieces)

    def plain_runs(self, piece: Piece) -> bool:
        """Tell whether the plain loops of a piece can be run, and agree with themselves."""
        with Child(lambda: lambda _: plain_runs(piece, self._conditions)) as child:
            child.tell()
            found = _outcome(child)
        return isinstance(found, Checked) and found.finding is Finding.RIGHT

    def _child(self, piece: Piece, seconds: float) -> Child:
        limited = bounded(piece, self._conditions)
        return Child(
            lambda: lambda _: do(piece, self._conditions), seconds=seconds, bounded=limited
        )


def _outcome(child: Child, seconds: float = SECONDS) -> Outcome:
    """Return what a child answers that may take so many seconds, and end it."""
    try:
        return Checked.of(child.answer())
    except Failed as error:
        late = error.how is How.HUNG and seconds < SECONDS
        return Postponed(begun=True) if late else error
    except StoreError as error:
        return error
    except (ValueError, TypeError, LookupError):  # what it checks may have it say anything
        return Failed(garbled())
    finally:
        child.close()
