"""S1 of the RFC: the scheduler sees all tasks, and goes on with those that are worth a search.

Each task has been measured once by then, with the schedules that need no search.
"""

import math
from collections.abc import Mapping, Sequence

from autopipe.config.tasks import Judge
from autopipe.errors import StageError
from autopipe.schedules.engines.engine import Search
from autopipe.tuning.task_state import Work


class NotWorth(StageError):  # noqa: N818 - says what happened
    """A design space has too few schedules to be searched."""


def set_aside(works: Sequence[Work], shares: Mapping[int, float], judge: Judge | None) -> None:
    """Stop the tasks with a time, but too little of it; `shares` are measured, by index of task."""
    if judge is None:
        return
    for work in works:
        standing, share = work.standing, shares[work.standing.task.index]
        if standing.best < math.inf and share < judge.min_share:
            standing.stopped = f"{share:.3%} of the measured time < {judge.min_share:.3%}"


def size(search: Search) -> float:
    """Return how many schedules a search has to choose from; infinite if it does not say."""
    return getattr(search, "size", math.inf)


def demand(found: float, least: int) -> None:
    """Raise NotWorth if a design space has fewer schedules than that."""
    if found < least:
        raise NotWorth(f"a design space of {found:.0f} < {least} schedules")
