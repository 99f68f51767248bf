"""S1 of the RFC: the scheduler sees all tasks, and goes on with those that are worth a search.

Each task has been measured once by then, with the schedules that need no search.
"""

import math
from collections.abc import Sequence

from autopipe.config.tasks import Judge
from autopipe.errors import StageError
from autopipe.schedules.engines.engine import Search
from autopipe.tuning.task_state import TaskState


class NotWorth(StageError):  # noqa: N818 - says what happened
    """A design space has too few schedules to be searched."""


def set_aside(states: Sequence[TaskState], judge: Judge | None) -> None:
    """Stop the tasks with a time, but too little of it."""
    if judge is None:
        return
    for state in states:
        if state.best < math.inf and state.share < judge.min_share:
            state.stopped = f"{state.share:.3%} of the measured time < {judge.min_share:.3%}"


def size(search: Search) -> float:
    """Return how many schedules a search has to choose from; infinite if it does not say."""
    return getattr(search, "size", math.inf)


def demand(found: float, least: int) -> None:
    """Raise NotWorth if a design space has fewer schedules than that."""
    if found < least:
        raise NotWorth(f"a design space of {found:.0f} < {least} schedules")
