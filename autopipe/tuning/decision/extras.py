"""Plain loops, which no search proposes.

They are those of `default` without threads, and those as lowered, without threads and with. Where a
heavy task is compared inside the model, each of these gets one trial before, and may be a finalist
then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autopipe.pipeline.counted import Watch
from autopipe.safety.maker import Maker
from autopipe.schedules.policy import PLAIN
from autopipe.tuning.deadline import EXTRAS, Deadline
from autopipe.tuning.decision.finalists import find_heavy
from autopipe.tuning.decision.task_timer import TaskTimer
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.runners.runner import Rounds
from autopipe.tuning.task_state import TaskState, rank_by_share
from autopipe.tuning.trials import Trials

_OPERATION: Final = 6e-11
"""Fewest seconds of an operation in plain loops, which read an operand from memory for each.

On an Ice Lake at 2.8 GHz it was 9e-11 in the fastest of 48 loops, a pool of maxima.
"""

PlainLoops = Callable[[TaskState], Sequence[Proposal]]
"""Returns the plain loops of a task that may be the fastest."""

Guests = Mapping[str, Sequence[Proposal]]
"""Schedules of a workload that take part for the sake of other sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The schedules that are timed besides those of the search."""

    plain: PlainLoops = lambda _: ()
    guests: Guests = field(default_factory=dict)

    def list_plain(self, state: TaskState) -> list[Proposal]:
        """List the plain loops that may win, if the rule of the task admits any."""
        return list(self.plain(state) if state.admits_plain else ())


def make_extras(maker: Maker, *, guests: Guests) -> Extras:
    """Return the extras of tasks whose schedules `maker` makes."""

    def plain(state: TaskState) -> list[Proposal]:
        if state.task.flops * _OPERATION > state.best:
            return []
        return [
            Proposal(by, planned.schedule)
            for by in PLAIN
            for planned in maker.plans(state.task.name, by.engine)
        ]

    return Extras(plain=plain, guests=guests)


def measure_extras(
    trials: Trials, *, runner: Rounds, extras: Extras, deadline: Deadline, watch: Watch
) -> None:
    """Time the plain loops of the heavy tasks once, those of the heaviest task first.

    They are no trials of the budget. Tasks that there is no time for are counted in `deadline`.
    """
    journal = trials.journal
    heavy = find_heavy(trials.states, journal)
    states = [state for state in trials.states if state.task.workload in heavy]
    timer = TaskTimer(trials, runner, rounds=1, deadline=deadline, skipped=EXTRAS)
    for state in watch.each("plain loops tried", rank_by_share(states)):
        if results := timer.time(state, _list_untried(state, journal, extras)):
            journal.add_uncounted(state, results)


def _list_untried(state: TaskState, journal: Journal, extras: Extras) -> list[Proposal]:
    if not journal.ranked(state):
        return []
    tried_schedules = {one.proposal.schedule for one in journal.evidence(state)}
    return [one for one in extras.list_plain(state) if one.schedule not in tried_schedules]
