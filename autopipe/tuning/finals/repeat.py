"""Time the fastest schedules of each task once more, in turn with the untuned one and plain loops.

Trials are measured one after the other over minutes, and a machine is never alone for so long. Here
all are timed in turn, so that what else goes on falls on each of them, and the median of the rounds
is evidence. The untuned schedule takes part for every task, and so do the plain loops: those of
`default` without threads, and those as lowered, without threads and with. So no winner is slower.
And of small kernels the fastest setting of a template on one thread: to hand work to another core
and to wait for it takes microseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import tvm

from autopipe.measure.turn import TurnTimeout
from autopipe.pipeline.counted import Watch
from autopipe.processes.contained import Failed
from autopipe.safety.maker import Refused
from autopipe.schedules import one_thread
from autopipe.schedules.policy import LOOPS, PLAIN, Contender
from autopipe.tasks.task import Task
from autopipe.tuning.check_schedules import Checks, check_winners
from autopipe.tuning.deadline import REPEATS, Deadline
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.runners.runner import Rounds
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

ROUNDS: Final = 3

_BEST: Final = 2
"""Schedules that take part, besides the plain loops."""

_SMALL: Final = 1.5e-4
"""Seconds of a call; a longer one gains more from a second core than that costs."""

_OPERATION: Final = 2e-11
"""Fewest seconds of an operation in loops as lowered, where sums are no vectors."""

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
    """The schedules that are repeated besides the fastest of the trials and the untuned one."""

    plain: PlainLoops = lambda _: ()
    single: Single = lambda *_: None
    guests: Guests = field(default_factory=dict)


def repeat_fastest(  # noqa: PLR0913 - all but the tasks by name
    trials: Trials,
    *,
    runner: Rounds,
    checks: Checks,
    guests: Guests,
    deadline: Deadline,
    dynamic: Sequence[Task],
    watch: Watch,
) -> None:
    """Time the fastest schedules of each task once more, in turn; check them before and after.

    `dynamic` are the tasks with dynamic shapes, which are tuned at specialized sizes.
    """

    def plain(state: TaskState) -> list[Proposal]:
        slow = state.task.flops * _OPERATION > state.best
        return [
            Proposal(by, planned.schedule)
            for by in PLAIN
            if not (slow and by in LOOPS)
            for planned in checks.maker.plans(state.task.name, by.engine)
        ]

    watch.begin("checking the winners of the trials")
    check_winners(trials.states, checks)
    specialized_names = {name for task in dynamic for name in (task.likely, *task.also_likely)}
    keeps_threads = trials.touched > 0 and not deadline.in_model

    def single(state: TaskState, fastest: Proposal) -> str | None:
        # it is tuned for other sizes, too, which may be large
        if keeps_threads or state.task.workload in specialized_names:
            return None
        return make_one_thread_schedule(state, fastest, checks.maker.replay)

    if keeps_threads:
        exclude_one_thread(trials.states, trials.journal)
    extras = Extras(plain=plain, single=single, guests=guests)
    measure_repeats(trials, runner=runner, extras=extras, deadline=deadline, watch=watch)
    if keeps_threads:
        exclude_one_thread(trials.states, trials.journal)  # guests from other sizes
    check_winners(trials.states, checks)


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


def measure_repeats(
    trials: Trials, *, runner: Rounds, extras: Extras, deadline: Deadline, watch: Watch
) -> None:
    """Time the fastest schedules of each task that has a record in turn.

    The heaviest tasks come first, as far as there is time: of the others, the trials decide.
    """
    journal, longest = trials.journal, 0.0
    heaviest_first = sorted(trials.states, key=lambda state: -state.task.share)
    for state in watch.each("tasks timed once more", heaviest_first):
        parts = _select_parts(state, journal, extras)
        if not parts or journal.recall_repeats(state, parts):
            continue
        start = monotonic()
        if deadline.left() <= longest or not _measure_rounds(state, parts, trials, runner):
            deadline.left_out[REPEATS] += 1
        longest = max(longest, monotonic() - start)


def _measure_rounds(
    state: TaskState, parts: Sequence[Proposal], trials: Trials, runner: Rounds
) -> bool:
    """Time schedules in turn; return whether there was time for it."""
    if parts:
        candidates = [trials.candidate(state, part) for part in parts]
        try:
            measurements = runner.rounds(candidates, ROUNDS)
        except TurnTimeout:
            return False
        trials.journal.add_repeats(state, dict(zip(parts, measurements, strict=True)))
    return True


def _select_parts(state: TaskState, journal: Journal, extras: Extras) -> list[Proposal]:
    """Return the schedules that take part, each once; none of a task without a record."""
    proposals = list(dict.fromkeys(one.proposal for one in journal.ranked(state)))
    some = [*proposals[:_BEST], *(other for other in proposals[_BEST:] if other == state.untuned)]
    some += [
        guest for guest in extras.guests.get(state.task.workload, ()) if some and guest not in some
    ]
    one_thread_schedule = extras.single(state, some[0]) if some else None
    if one_thread_schedule is not None and all(
        part.schedule != one_thread_schedule for part in some
    ):
        some.append(Proposal(some[0].by, one_thread_schedule))
    for loops in extras.plain(state) if some and state.admits_plain else ():
        if all(part.schedule != loops.schedule for part in some):
            some.append(loops)
    return some


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
