"""Task schedulers: which task gets the next batch of trials."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from autopipe.tuning.task_state import TaskState

_BACKWARD: Final = 0.2
"""Weight of the observed slope against the predicted one; alpha in the paper."""

_SIMILAR: Final = 2.0
"""How much slower per operation than the best similar task counts as finished; beta."""

_WINDOW: Final = 3
"""Batches over which the slope so far is taken."""

_AHEAD: Final = 2
"""Batches that a task may have before all others have had one."""


Scheduler = Callable[[Sequence[TaskState]], TaskState]
"""Chooses one of the tasks that are not stopped; there is at least one."""


def choose_by_gradient(states: Sequence[TaskState]) -> TaskState:
    """Choose the task with the largest expected gain of the model from its next batch.

    Section 6 of "Ansor" (OSDI 2020). First comes what has no schedule yet, the heaviest before.
    A task that was never searched comes before another one goes far ahead: its gain is unknown.
    """
    active_states = [state for state in states if state.stopped is None]
    untimed_states = [state for state in active_states if state.best == math.inf]
    if untimed_states:
        return max(untimed_states, key=lambda state: (-len(state.history), state.task.share))
    steepest = max(active_states, key=lambda state: _estimate_gain(state, states))
    unsearched_states = [state for state in active_states if not _count_searched(state)]
    if unsearched_states and _count_searched(steepest) >= _AHEAD:
        return max(unsearched_states, key=lambda state: state.share)
    return steepest


def choose_round_robin(states: Sequence[TaskState]) -> TaskState:
    """Choose the task that had the fewest batches."""
    active_states = [state for state in states if state.stopped is None]
    return min(active_states, key=lambda state: len(state.history))


SCHEDULERS: Final[Mapping[str, Scheduler]] = {
    "gradient": choose_by_gradient,
    "round_robin": choose_round_robin,
}
"""The task schedulers, by the name that YAML gives them."""


def _count_searched(state: TaskState) -> int:
    """Return how many batches engines have searched for a task."""
    return sum(arm.stats.batches for arm in state.bandit.arms.values())


def _estimate_gain(state: TaskState, states: Sequence[TaskState]) -> float:
    """Return the seconds that one more batch is expected to take off one inference."""
    best, batches = state.best, len(state.history)
    if best == math.inf:
        return 0.0
    window = min(_WINDOW, batches - 1)
    before = state.history[-1 - window]
    past = (before - best) / window if window and before < math.inf else 0.0
    coming = best - min(best - best / batches, _SIMILAR * _estimate_from_similar(state, states))
    return state.task.calls * (_BACKWARD * past + (1 - _BACKWARD) * coming)


def _estimate_from_similar(state: TaskState, states: Sequence[TaskState]) -> float:
    """Return the seconds the task would take at the speed of the best task with the same ops."""
    flops = state.task.flops
    similar = [s for s in states if s.task.info.names == state.task.info.names and s.task.flops > 0]
    return min((flops * s.best / s.task.flops for s in similar), default=math.inf)
