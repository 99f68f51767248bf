"""Schedules that no search proposes: plain loops, and settings of templates on one thread.

The plain loops are those of `default` without threads, and those as lowered, without threads and
with. Of a small kernel the fastest setting is tried on one thread: to hand work to another core and
to wait for it takes microseconds. Where a heavy task is compared inside the model, each of these
gets one trial before, and may be a finalist then.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import tvm

from autopipe.pipeline.counted import Watch
from autopipe.processes.contained import Failed
from autopipe.safety.maker import Maker, Refused
from autopipe.schedules import one_thread
from autopipe.schedules.policy import PLAIN, Contender
from autopipe.tuning.deadline import EXTRAS, Deadline
from autopipe.tuning.decision.finalists import find_heavy
from autopipe.tuning.decision.task_timer import TaskTimer
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.runners.runner import Rounds
from autopipe.tuning.task_state import TaskState, rank_by_share
from autopipe.tuning.trials import Trials

_SMALL: Final = 1.5e-4
"""Seconds of a call; a longer one gains more from a second core than that costs."""

_OPERATION: Final = 2e-11
"""Fewest seconds of an operation in plain loops, which read an operand from memory for each."""

PlainLoops = Callable[[TaskState], Sequence[Proposal]]
"""Returns the plain loops of a task that may be the fastest."""

Single = Callable[[TaskState, Proposal], str | None]
"""Returns the schedule of a proposal on one thread, or None if that is not worth a try."""

Replay = Callable[[str, Contender, str], tvm.IRModule]
"""Replays the schedule that an arm proposed for a task, by the name of the task."""

Guests = Mapping[str, Sequence[Proposal]]
"""Schedules of a workload that take part for the sake of other sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The schedules that are timed besides those of the search."""

    plain: PlainLoops = lambda _: ()
    single: Single = lambda *_: None
    guests: Guests = field(default_factory=dict)

    def list_proposals(self, state: TaskState, fastest: Proposal) -> list[Proposal]:
        """List the fastest schedule on one thread, and the plain loops that may win."""
        schedule = self.single(state, fastest)
        proposals = [] if schedule is None else [Proposal(fastest.by, schedule)]
        return proposals + list(self.plain(state) if state.admits_plain else ())


def make_extras(maker: Maker, *, guests: Guests, no_single: Collection[str | None] = ()) -> Extras:
    """Return the extras of tasks whose schedules `maker` makes.

    The workloads `no_single` have no setting on one thread.
    """

    def plain(state: TaskState) -> list[Proposal]:
        if state.task.flops * _OPERATION > state.best:
            return []
        return [
            Proposal(by, planned.schedule)
            for by in PLAIN
            for planned in maker.plans(state.task.name, by.engine)
        ]

    def single(state: TaskState, fastest: Proposal) -> str | None:
        if state.task.workload in no_single:
            return None
        return make_one_thread_schedule(state, fastest, maker.replay)

    return Extras(plain=plain, single=single, guests=guests)


def measure_extras(
    trials: Trials, *, runner: Rounds, extras: Extras, deadline: Deadline, watch: Watch
) -> None:
    """Time the extras of the heavy tasks once, those of the heaviest task first.

    They are no trials of the budget. Tasks that there is no time for are counted in `deadline`.
    """
    journal = trials.journal
    heavy = find_heavy(trials.states, journal)
    states = [state for state in trials.states if state.task.workload in heavy]
    timer = TaskTimer(trials, runner, rounds=1, deadline=deadline, skipped=EXTRAS)
    for state in watch.each("plain loops and single threads tried", rank_by_share(states)):
        if results := timer.time(state, _list_untried(state, journal, extras)):
            journal.add_uncounted(state, results)


def _list_untried(state: TaskState, journal: Journal, extras: Extras) -> list[Proposal]:
    ranked_trials = journal.ranked(state)
    if not ranked_trials:
        return []
    tried_schedules = {one.proposal.schedule for one in journal.evidence(state)}
    proposals = extras.list_proposals(state, ranked_trials[0].proposal)
    return [one for one in proposals if one.schedule not in tried_schedules]


def exclude_one_thread(states: Sequence[TaskState], journal: Journal) -> None:
    """Exclude settings on one thread, for tasks that are not timed inside the model.

    A trial has to wake threads that are awake in a model, so it favours them.
    """
    for state in states:
        journal.exclude(
            state,
            lambda proposal: one_thread.is_setting(proposal.schedule),
            "threads are awake in a model",
        )


def make_one_thread_schedule(state: TaskState, fastest: Proposal, replay: Replay) -> str | None:
    """Return the fastest schedule of a task with all loops on one thread.

    None where it takes long, has one thread anyway, or is a trace.
    """
    if state.best > _SMALL:
        return None
    schedule = one_thread.make_setting(fastest.schedule)
    try:
        module = replay(state.task.name, *fastest) if schedule is not None else None
    except (Refused, Failed):
        return None
    return schedule if module is not None and one_thread.remove_threads(module) else None
