"""S1 of the RFC: the scheduler sees all tasks, and goes on with those that are worth a search.

Each task has been measured once by then, with the schedules that need no search.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autopipe.compiler.tasks import parse_label
from autopipe.config.tasks import Judge
from autopipe.errors import StageError
from autopipe.schedules.engines.engine import Search
from autopipe.tasks.shares import TOO_LITTLE
from autopipe.tuning.task_state import TaskState

NEAR: Final = "near the bound"
"""Why a task gets no trials, or no more."""


class NotWorth(StageError):  # noqa: N818 - names an event
    """A design space has too few schedules to be searched."""


@dataclass(frozen=True, slots=True)
class SearchWorth:
    """The possible gain of a search in each task, and the tasks that get no trials for lack of it.

    The possible gain of a task is the time of its fastest schedule above the lower bound of the
    machine, as a part of the model's time before the search. The tasks with the smallest gains are
    set aside, as many as gain less than `tasks.judge.min_gain` together: the loss is never larger,
    however many tasks a model has. This is decided before the search and after each batch. A task
    that was set aside stays so, for its time never grows.
    """

    states: Sequence[TaskState]
    bounds: Sequence[float]
    """Seconds of one call that no schedule of a task can beat; 0 where that is unknown."""
    runs: Sequence[float]
    """Seconds of a run of the model that each task is part of; infinite where that is unknown."""
    min_gain: float
    """Part of the model's time that is given up, at most; 0 to search all tasks."""
    aside: set[int] = field(default_factory=set)
    """Places of the tasks that were set aside."""

    @classmethod
    def of(
        cls, states: Sequence[TaskState], judge: Judge | None, bounds: Sequence[float]
    ) -> "SearchWorth":
        """Create the rule for tasks with measured initial candidates."""
        return cls(states, bounds, _estimate_run_seconds(states), judge.min_gain if judge else 0.0)

    def gains(self, seconds: Sequence[float] | None = None) -> list[float]:
        """Return the part of the model's time that can be gained in each task.

        `seconds` are of one call; without them it is what each task's fastest trial takes. NaN for
        a task without a time.
        """
        times = [state.best for state in self.states] if seconds is None else seconds
        return [
            state.task.calls * max(0.0, time - bound) / run if time < math.inf else math.nan
            for state, time, bound, run in zip(
                self.states, times, self.bounds, self.runs, strict=True
            )
        ]

    def set_aside(self) -> None:
        """Stop the tasks with the smallest gains, unless all of them could gain `min_gain`."""
        gains = self.gains()
        for group in _group_by_size(self.states).values():
            left = self.min_gain - sum(gains[at] for at in group if at in self.aside)
            going = [at for at in group if self.states[at].stopped is None and gains[at] >= 0]
            for at in sorted(going, key=lambda at: (gains[at], at)):
                state = self.states[at]
                left -= gains[at]
                if left <= 0:
                    break
                was_searched = any(arm.stats.batches for arm in state.bandit.arms.values())
                state.stopped = NEAR if was_searched else TOO_LITTLE
                self.aside.add(at)


def _estimate_run_seconds(states: Sequence[TaskState]) -> list[float]:
    """Return the seconds of a run of the model that each task is part of.

    With several specialized sizes each is a model of its own: a batch of 64 would hide all that a
    batch of 1 does.
    """
    runs = [math.inf] * len(states)
    for sizes, group in _group_by_size(states).items():
        timed_states = [states[at] for at in group if states[at].best < math.inf]
        timed_share = sum(state.share for state in timed_states)
        total_share = sum(states[at].share for at in group) if sizes else 1.0
        if timed_share:
            run = (
                sum(state.task.calls * state.best for state in timed_states)
                * total_share
                / timed_share
            )
            runs = [run if at in group else other for at, other in enumerate(runs)]
    return runs


def _group_by_size(states: Sequence[TaskState]) -> Mapping[str, Sequence[int]]:
    """Group the places of the tasks by the specialized sizes of their model."""
    groups: dict[str, list[int]] = {}
    for at, sizes in enumerate(_list_size_labels(states)):
        groups.setdefault(sizes, []).append(at)
    return groups


def _list_size_labels(states: Sequence[TaskState]) -> list[str]:
    """List the specialized sizes of the model of each task, such as `8x128`.

    Empty where there is one model. Sizes that a model computes make no other one: its tasks without
    such sizes have names without any.
    """
    labels = [parse_label(state.task.name) for state in states]
    has_one_model = any(state.share and not at for state, at in zip(states, labels, strict=True))
    return [""] * len(states) if has_one_model else labels


def count_schedules(search: Search) -> float:
    """Return the size of the design space of a search; infinite if unknown."""
    return getattr(search, "size", math.inf)


def check_space_size(size: float, least: int) -> None:
    """Raise NotWorth if a design space has fewer schedules than `least`."""
    if size < least:
        raise NotWorth(f"a design space of {size:.0f} < {least} schedules")
