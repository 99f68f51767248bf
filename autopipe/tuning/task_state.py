"""How far the tuning of one task has come."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import tvm

from autopipe.schedules.policy import PLAIN, SERIAL, Contender, is_allowed
from autopipe.tasks.task import Task
from autopipe.tuning.bandit import Bandit
from autopipe.tuning.evidence import Proposal


@dataclass(slots=True)
class TaskState:
    """The tuning state of one task: its trials, best time and history.

    TVM's task scheduler calls it a task record. Here a record is what one trial leaves behind.
    """

    task: Task
    text: str
    """The unscheduled module as JSON, as it is kept in the store."""
    module: tvm.IRModule
    """The unscheduled module, annotated with its operators."""
    starts: Mapping[Contender, str]
    """Initial candidates, timed before any search, by arm."""
    bandit: Bandit
    """Allocates its trials to arms."""
    share: float = 0.0
    """Its part of the model's time: the estimate, then measured with its initial candidates."""
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
    implementations: Mapping[str, tvm.IRModule] = field(default_factory=dict)
    """Its implementations by name, so that no trial builds one again."""

    def count(self, seconds: float) -> None:
        """Take the result of one trial, infinite if it failed."""
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
        for seconds, is_own in trials:
            if is_own:
                self.stale = 0 if seconds < best else self.stale + 1
            best = min(best, seconds)

    @property
    def untuned(self) -> Proposal | None:
        """The schedule of an untuned build: the first start."""
        return next((Proposal(*start) for start in self.starts.items()), None)

    @property
    def preferred_engines(self) -> tuple[str, ...]:
        """The engines of the rule where it selects the first; none where the fastest wins."""
        rule = self.bandit.rule
        return tuple(rule.engines) if rule.select == "first" else ()

    def admits(self, by: Contender) -> bool:
        """Tell whether a schedule of this arm may win."""
        rule = self.bandit.rule
        implementations = {entry.implementation for entry in self.bandit.arms}
        is_searched = by.engine in rule.engines and by.implementation in implementations
        if by in PLAIN:
            return self.admits_plain
        return (is_searched and is_allowed(rule, *by)) or by in self.starts

    @property
    def admits_plain(self) -> bool:
        """Whether plain loops may win: not where a rule wants something else."""
        rule = self.bandit.rule
        return rule.select == "best" and is_allowed(rule, *SERIAL)


def rank_by_share(states: Iterable[TaskState]) -> list[TaskState]:
    """Return the states of tasks, the heaviest task first."""
    return sorted(states, key=lambda state: -state.task.share)
