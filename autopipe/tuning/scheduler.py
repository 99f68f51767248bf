"""Task schedulers: which task gets the next batch of trials."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autopipe.tasks.task import Task

_BACKWARD: Final = 0.2
"""Trust in the slope so far against the guess of what is to come; alpha in the paper."""

_SIMILAR: Final = 2.0
"""How much slower per operation than the best similar task counts as finished; beta."""

_WINDOW: Final = 3
"""Batches over which the slope so far is taken."""


@dataclass(slots=True)
class Standing:
    """How far the tuning of one task has come."""

    task: Task
    trials: int = 0
    """Trials of this session, those of interrupted runs included."""
    failed: int = 0
    """Of these, the ones without a time."""
    best: float = math.inf
    """Least seconds of one call; infinite before there is one."""
    stale: int = 0
    """Trials since the best became better."""
    history: list[float] = field(default_factory=list)
    """The best after each batch of this process."""
    stopped: str | None = None
    """Why the task gets no more trials; null while it does."""

    def count(self, seconds: float) -> None:
        """Take the result of one trial; infinite if it failed."""
        self.trials += 1
        self.failed += seconds == math.inf
        self.stale = 0 if seconds < self.best else self.stale + 1
        self.best = min(self.best, seconds)

    def recall(self, trials: Iterable[tuple[float, bool]]) -> None:
        """Count trials in a row without a better schedule as `count` did before an interruption.

        Take the seconds of all that was ever measured, oldest first, each with whether this session
        did it.
        """
        best = math.inf
        for seconds, own in trials:
            if own:
                self.stale = 0 if seconds < best else self.stale + 1
            best = min(best, seconds)


Scheduler = Callable[[Sequence[Standing]], Standing]
"""Chooses one of the tasks that are not stopped; there is at least one."""


def gradient(standings: Sequence[Standing]) -> Standing:
    """Choose the task whose next batch shortens the model most.

    Section 6 of "Ansor" (OSDI 2020). First comes what has no schedule yet, the heaviest before.
    """
    going = [standing for standing in standings if standing.stopped is None]
    fresh = [standing for standing in going if standing.best == math.inf]
    if fresh:
        return max(fresh, key=lambda standing: (-len(standing.history), standing.task.share))
    return max(going, key=lambda standing: _gain(standing, standings))


def round_robin(standings: Sequence[Standing]) -> Standing:
    """Choose the task that had the fewest batches."""
    going = [standing for standing in standings if standing.stopped is None]
    return min(going, key=lambda standing: len(standing.history))


SCHEDULERS: Final[Mapping[str, Scheduler]] = {"gradient": gradient, "round_robin": round_robin}
"""The task schedulers, by the name that YAML gives them."""


def _gain(standing: Standing, standings: Sequence[Standing]) -> float:
    """Return the seconds that one more batch is expected to take off one inference."""
    best, batches = standing.best, len(standing.history)
    if best == math.inf:
        return 0.0
    window = min(_WINDOW, batches - 1)
    before = standing.history[-1 - window]
    past = (before - best) / window if window and before < math.inf else 0.0
    coming = best - min(best - best / batches, _SIMILAR * _reached(standing, standings))
    return standing.task.calls * (_BACKWARD * past + (1 - _BACKWARD) * coming)


def _reached(standing: Standing, standings: Sequence[Standing]) -> float:
    """Return the seconds the task would take at the speed of the best task with the same ops."""
    flops = standing.task.flops
    similar = [
        s for s in standings if s.task.info.names == standing.task.info.names and s.task.flops > 0
    ]
    return min((flops * s.best / s.task.flops for s in similar), default=math.inf)
