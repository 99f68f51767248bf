"""Which arm of a task proposes its next batch: a bandit over engines and implementations.

The reward of an arm is the part of the task's time that a batch took off, by the second the
batch took. An arm without batches is judged by its engine's rewards on the other tasks. An
optimistic term, which shrinks with every batch, revives arms with unlucky first batches.

A library leaves little to choose: its calls are timed before any search, and a few more ways to
call it are all that is left. So libraries are judged by libraries, and loops are searched before.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autopipe import libraries
from autopipe.config.schedules import Rule
from autopipe.schedules.policy import Contender

_MAX_ARM_SLOWDOWN: Final = 1.5
"""Implementations this many times slower than the task's best are not searched."""

_MEMORY: Final = 0.5
"""Weight of the last batch in the reward of an arm."""

_HOPE: Final = 0.1
"""Optimistic reward of the second batch, as a part of the task's time."""

_HOPELESS: Final = 2
"""Batches without a single time after which an arm is excluded."""


@dataclass(slots=True)
class ArmStats:
    """Recent reward of batches: of one arm, or of all arms with the same key."""

    batches: int = 0
    pace: float = 1.0
    """Mean seconds of a batch, with search and builds."""
    brought: float = 0.0
    """Smoothed reward of a batch: part of the task's time that it takes off."""

    def count(self, gain: float, seconds: float) -> None:
        """Update the statistics with one batch."""
        self.batches += 1
        self.pace += (max(seconds, 1e-3) - self.pace) / self.batches
        self.brought += _MEMORY * (gain - self.brought)


@dataclass(slots=True)
class Arm:
    """An engine and implementation of one task, with the results of its trials."""

    trials: int = 0
    """Trials of this session."""
    best: float = math.inf
    """Minimum seconds of one call among its own schedules."""
    stats: ArmStats = field(default_factory=ArmStats)
    out: str | None = None
    """Why the arm is excluded; null while it is active."""


@dataclass(slots=True)
class Bandit:
    """Allocates the trials of one task to its arms."""

    rule: Rule
    position: int | None
    """Which rule of the policy it is; null without one."""
    arms: dict[Contender, Arm]
    """The arms, those of the rule's first engine first."""
    shared_stats: dict[str, ArmStats] = field(default_factory=dict)
    """Statistics of each engine with loops, and of each library, shared by all tasks."""
    reached: dict[str, float] = field(default_factory=dict)
    """Minimum seconds of one call of each implementation, over all arms."""

    def note_time(self, implementation: str, seconds: float) -> None:
        """Update the minimum time of an implementation."""
        self.reached[implementation] = min(seconds, self.reached.get(implementation, math.inf))

    def observe(self, by: Contender, seconds: float) -> None:
        """Update an arm with the time of a schedule that another run measured."""
        self.note_time(by.implementation, seconds)
        self.arms[by].best = min(self.arms[by].best, seconds)

    def count_batch(
        self, by: Contender, times: Sequence[float], before: float, seconds: float
    ) -> None:
        """Update an arm with the times of a batch; `before` is the task's best until then."""
        arm = self.arms[by]
        arm.trials += len(times)
        arm.best = min(arm.best, *times, math.inf)
        gain = max(0.0, 1 - arm.best / before) if before < math.inf else 0.0
        for stats in (arm.stats, self.shared_stats.setdefault(_choose_stats_key(by), ArmStats())):
            stats.count(gain, seconds)
        if arm.best == math.inf and arm.stats.batches >= _HOPELESS:
            arm.out = "no candidate could be measured"

    def select(self) -> Contender | None:
        """Select the arm that proposes next, or None if none is worth another trial."""
        best = min(self.reached.values(), default=math.inf)
        ready = {
            by: arm
            for by, arm in self._select_admitted().items()
            if arm.out is None and self._is_near_best(by, best)
        }
        return max(
            self._select_due_arms(ready),
            key=lambda by: self._score_contender(by, best),
            default=None,
        )

    def _score_contender(self, by: Contender, best: float) -> tuple[float, bool, float, int]:
        """Estimate the reward of the next batch per second; ties are broken by promise."""
        arm = self.arms[by]
        implementation_time = self.reached.get(by.implementation, math.inf)
        promise = (not _is_library(by), -implementation_time, -self.rule.engines.index(by.engine))
        stats = arm.stats if arm.stats.batches else self.shared_stats.get(_choose_stats_key(by))
        if stats is None or not stats.batches:  # no statistics for its key
            return math.inf, *promise
        arm_time = (
            arm.best if arm.stats.batches else min(implementation_time, _MAX_ARM_SLOWDOWN * best)
        )
        near = min(1.0, best / arm_time) if arm_time < math.inf else 0.0
        hope = _HOPE * near**2 / max(1, arm.stats.batches)
        return (stats.brought + hope) / stats.pace, *promise

    def explain_end(self) -> str:
        """Return the reason that no arm is left."""
        reasons = [arm.out for arm in self.arms.values() if arm.out is not None]
        return reasons[-1] if reasons else "the policy gives it no engine"

    def _select_admitted(self) -> dict[Contender, Arm]:
        """Return the arms that the rule admits: of one engine alone, if it selects the first."""
        if self.rule.select == "best":
            return self.arms
        for engine in self.rule.engines:
            engine_arms = _select_by_engine(self.arms, {engine})
            if any(arm.out is None or arm.best < math.inf for arm in engine_arms.values()):
                return engine_arms
        return {}

    def _is_near_best(self, by: Contender, best: float) -> bool:
        implementation_time = self.reached.get(by.implementation, math.inf)
        is_untried = implementation_time == math.inf and not self.arms[by].stats.batches
        return implementation_time <= _MAX_ARM_SLOWDOWN * best or is_untried

    def _select_due_arms(self, ready: dict[Contender, Arm]) -> dict[Contender, Arm]:
        """Select the arms of the engine furthest below its share, or of all engines without one."""
        shares = self.rule.shares
        total = sum(arm.trials for arm in self.arms.values())
        engines = {by.engine for by in ready}
        if not shares or len(engines) == 1:
            return ready
        trial_counts = dict.fromkeys(engines, 0)
        for by, arm in _select_by_engine(self.arms, engines).items():
            trial_counts[by.engine] += arm.trials
        lacking = {e: trial_counts[e] / shares[e] for e in engines if e in shares}
        first = min(lacking, key=lambda engine: (lacking[engine], engine), default=None)
        free = engines - shares.keys()
        if first is not None and (not free or lacking[first] <= total):
            return _select_by_engine(ready, {first})
        return _select_by_engine(ready, free)


def _is_library(by: Contender) -> bool:
    return libraries.find_library(by.implementation) is not None


def _choose_stats_key(by: Contender) -> str:
    """Choose the key of the shared statistics that stand in for an arm without batches."""
    return by.implementation if _is_library(by) else by.engine


def _select_by_engine(
    arms: Mapping[Contender, Arm], engines: Collection[str]
) -> dict[Contender, Arm]:
    return {by: arm for by, arm in arms.items() if by.engine in engines}
