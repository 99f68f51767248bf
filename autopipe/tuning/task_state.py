"""A task on its way through tuning, and the budget that all of them share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autopipe.config.tuning import Budget
from autopipe.measure.measurement import Candidate
from autopipe.records.session import Session
from autopipe.schedules.engines.fallback import Fallback
from autopipe.schedules.policy import SERIAL, Contender, allows
from autopipe.tuning.contest import Contest
from autopipe.tuning.scheduler import Standing


@dataclass(frozen=True, slots=True)
class Work:
    """One task with what is needed to measure it."""

    standing: Standing
    text: str
    """The unscheduled module as JSON, as it is kept in the store."""
    candidate: Callable[[str, str], Candidate]
    """Makes what can be measured from an implementation and a schedule of it."""
    starts: Sequence[Fallback]
    """Schedules that cost nothing, timed before anything is searched."""
    contest: Contest
    """Who proposes schedules."""

    def admits(self, by: Contender) -> bool:
        """Tell whether a schedule of this contender may win."""
        rule = self.contest.rule
        known = {entry.by.implementation for entry in self.contest.entries.values()}
        searched = by.engine in rule.engines and by.implementation in known
        if by == SERIAL:
            return self.serial
        return (searched and allows(rule, *by)) or by in self.started()

    @property
    def serial(self) -> bool:
        """Whether the loops without threads may win: not where a rule wants something else."""
        rule = self.contest.rule
        return rule.select == "best" and allows(rule, *SERIAL)

    def started(self) -> dict[Contender, str]:
        """Return the schedules that cost nothing, by who made them."""
        return {
            Contender(start.engine, start.planned.implementation): start.planned.schedule
            for start in self.starts
            if start.planned is not None
        }


@dataclass(frozen=True, slots=True)
class Spending:
    """What is left of the budget."""

    budget: Budget
    standings: Sequence[Standing]
    session: Session

    def left(self) -> int:
        """Return how many trials are left for all tasks."""
        return self.budget.trials - sum(standing.trials for standing in self.standings)

    def late(self) -> bool:
        """Tell whether the time is spent."""
        return self.session.elapsed >= (self.budget.time or math.inf)

    def allowance(self, standing: Standing) -> int:
        """Return how many trials are left for a task."""
        return int(min(self.left(), (self.budget.trials_per_task or math.inf) - standing.trials))

    def verdict(self, standing: Standing) -> str | None:
        """Return why a task gets no more trials, or None if it may go on."""
        if standing.trials >= (self.budget.trials_per_task or math.inf):
            return "its trials are spent"
        if standing.stale >= (self.budget.early_stop or math.inf):
            return f"no better schedule in {standing.stale} trials"
        return None
