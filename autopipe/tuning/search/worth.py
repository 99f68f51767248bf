"""S1 of the RFC: the scheduler sees all tasks, and goes on with those that are worth a search.

Each task has been measured once by then, with the schedules that need no search.
"""

import math
from collections.abc import Sequence

from autopipe.compiler.tasks import label_of
from autopipe.config.tasks import Judge
from autopipe.errors import StageError
from autopipe.schedules.engines.engine import Search
from autopipe.tuning.task_state import TaskState


class NotWorth(StageError):  # noqa: N818 - says what happened
    """A design space has too few schedules to be searched."""


def set_aside(states: Sequence[TaskState], judge: Judge | None) -> None:
    """Stop the tasks with a time, but too little of it.

    With several likely sizes each is a model of its own, and what counts is the part of its time: a
    batch of 64 would hide all that a batch of 1 does.
    """
    if judge is None:
        return
    sizes = _sizes(states)
    wholes = dict.fromkeys(sizes, 0.0)
    for state, at in zip(states, sizes, strict=True):
        wholes[at] += state.share
    for state, at in zip(states, sizes, strict=True):
        share = state.share / wholes[at] if at and wholes[at] else state.share
        if state.best < math.inf and share < judge.min_share:
            where = f" at {at}" if at else ""
            state.stopped = f"{share:.3%} of the measured time{where} < {judge.min_share:.3%}"


def _sizes(states: Sequence[TaskState]) -> list[str]:
    """Return for each task the likely sizes that it is part of, such as `8x128`.

    Empty where there is one model. Sizes that a model computes make no other one: its tasks without
    such sizes have names without any.
    """
    found = [label_of(state.task.name) for state in states]
    one = any(state.share and not at for state, at in zip(states, found, strict=True))
    return [""] * len(states) if one else found


def size(search: Search) -> float:
    """Return how many schedules a search has to choose from; infinite if it does not say."""
    return getattr(search, "size", math.inf)


def demand(found: float, least: int) -> None:
    """Raise NotWorth if a design space has fewer schedules than that."""
    if found < least:
        raise NotWorth(f"a design space of {found:.0f} < {least} schedules")
