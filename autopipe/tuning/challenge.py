"""Who challenges a task's place inside the model, and whether he is likely to be faster."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from autopipe.benchmarking.interval import Interval, paired
from autopipe.tasks.task import Task
from autopipe.tuning.finalists import Finalists

SURE: Final = 0.99
"""Part of all cases in which an interval holds the ratio of two kernels, or of two models."""

_LIKELY: Final = 0.8
"""The same of the interval by which a task is decided: what one mistake costs is little, and the
whole is decided by `SURE`. To ask as much of each task leaves most of what there is to gain."""

_LEAST: Final = 0.99
"""A finalist has to take less than this part of the winner's time to be worth a change."""

Kernels = Sequence[Mapping[str, float]]
"""Seconds of all calls of each function in a run, for each round."""


class Challenge(NamedTuple):
    """How the finalists of one task did."""

    entry: Finalists
    at: int
    """Rank of who wins: the challenger, if he is likely to be faster, else who holds the place."""
    ratio: Interval | None
    """Of the challenger to who holds the place; null where there was none."""

    @property
    def decided(self) -> bool:
        """Whether it is sure who is faster."""
        return self.ratio is not None and not self.ratio.low <= 1.0 <= self.ratio.high


def challenge(entry: Finalists, held: int, at: int | None, rounds: Sequence[Kernels]) -> Challenge:
    """Compare who holds the place of a task with its challenger, who has this rank, if any."""
    own = calls(entry.state.task, rounds[0])
    if at is None or not own:
        return Challenge(entry, held, None)
    other = calls(entry.state.task, rounds[1])
    likely = paired(other, own, _LIKELY)
    faster = likely is not None and likely.high < 1.0 and likely.ratio < _LEAST
    return Challenge(entry, at if faster else held, paired(other, own, SURE))


def fastest(entry: Finalists, held: int, heat: Sequence[Kernels]) -> int:
    """Return the rank of who is fastest in a heat, besides who holds the place."""
    ranks = [rank for rank in range(min(len(entry.proposals), len(heat))) if rank != held]
    return min(ranks, key=lambda rank: median(calls(entry.state.task, heat[rank]) or (0.0,)))


def calls(task: Task, rounds: Kernels) -> tuple[float, ...]:
    """Return the seconds of one call of a task in each round; () if the model has none of it."""
    found = [sum(time.get(name, 0.0) for name in task.functions) for time in rounds]
    return tuple(total / task.calls for total in found) if all(found) else ()


def totals(rounds: Kernels) -> list[float]:
    """Return what all kernels take in each round."""
    return [sum(time.values()) for time in rounds]
