"""The run-off: who looks fastest is timed once more, against the runner-up and the plain loops.

Trials are measured one after the other over minutes, and a machine is never alone for so long. Here
all are timed in turn, so that what else goes on falls on each of them, and the median of the rounds
decides. What an untuned build has takes part for every task, and so do the plain loops: those of
`default` without threads, and those as lowered, without threads and with. So no winner is slower.
And of small kernels the fastest setting of a template on one thread:
to hand work to another core and to wait for it takes microseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final

import tvm

from autopipe.measure.turn import TurnTimeout
from autopipe.processes.contained import Failed
from autopipe.safety.maker import Refused
from autopipe.schedules import one_thread
from autopipe.schedules.policy import LOOPS, PLAIN, Contender
from autopipe.tuning.check_schedules import check_winners
from autopipe.tuning.deadline import RUN_OFFS, Deadline
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.runners.runner import Rounds
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.tools import Tools
from autopipe.tuning.trials import Trials

ROUNDS: Final = 3

_BEST: Final = 2
"""Schedules that take part, besides the plain loops."""

_PATIENCE: Final = 30.0
"""Seconds in which winners that were unsteady are timed again; one that was begun is ended."""

_SMALL: Final = 1.5e-4
"""Seconds of a call; what takes longer gains more by a second core than that costs."""

_OPERATION: Final = 2e-11
"""Fewest seconds of an operation in loops as lowered, where sums are no vectors."""

PlainLoops = Callable[[TaskState], Sequence[Proposal]]
"""Returns the plain loops of a task that may be the fastest."""

Single = Callable[[TaskState, Proposal], str | None]
"""Returns the schedule of a proposal on one thread, or None if that is not worth a try."""

Replay = Callable[[str, Contender, str], tvm.IRModule]
"""Makes the schedule that somebody has proposed for a task of that name."""

Guests = Mapping[str, Sequence[Proposal]]
"""Who takes part in the run-off of a workload besides, for the sake of other sizes."""


def settle(states: Sequence[TaskState], tools: Tools, guests: Guests) -> None:
    """Settle who wins each task by a run-off; who takes part and who wins it is checked."""

    def plain(state: TaskState) -> list[Proposal]:
        slow = state.task.flops * _OPERATION > state.best
        return [
            Proposal(by, planned.schedule)
            for by in PLAIN
            if not (slow and by in LOOPS)
            for planned in tools.maker.plans(state.task.name, by.engine)
        ]

    check_winners(states, tools.journal, tools.inspector, tools.maker)
    sized = {name for task in tools.open_tasks for name in (task.likely, *task.also_likely)}

    keeps_threads = tools.touched > 0 and not tools.finals

    def single(state: TaskState, fastest: Proposal) -> str | None:
        if (
            keeps_threads or state.task.workload in sized
        ):  # it is tuned for other sizes, too, which may be large
            return None
        return on_one_thread(state, fastest, tools.maker.replay)

    if keeps_threads:
        exclude_one_thread(states, tools.journal)
    run_off(tools.trials(states), tools.measurer, (plain, single), guests, tools.deadline)
    if keeps_threads:
        exclude_one_thread(states, tools.journal)  # guests from other sizes
    check_winners(states, tools.journal, tools.inspector, tools.maker)


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


def run_off(
    trials: Trials,
    measurer: Rounds,
    others: tuple[PlainLoops, Single],
    guests: Guests,
    deadline: Deadline,
) -> None:
    """Settle who wins each task that has a record at all; the unsteady ones twice.

    `others` make those who take part besides the fastest. The heaviest come first, as far as there
    is time: of the others, the trials decide.
    """
    journal, longest = trials.journal, 0.0
    for state in sorted(trials.states, key=lambda state: -state.task.share):
        parts = _parts(state, journal, others, guests.get(state.task.workload, ()))
        if not parts or journal.recall_repeats(state, parts):
            continue
        begun = monotonic()
        if deadline.left() <= longest or not _settle(state, parts, trials, measurer):
            deadline.left_out[RUN_OFFS] += 1
        longest = max(longest, monotonic() - begun)
    end = monotonic() + min(_PATIENCE, deadline.left() - longest)
    for state in trials.states:
        winner = journal.winner(state)
        if winner is None or journal.count_series(state) > 1:  # before an interruption
            continue
        if winner.is_unsteady and monotonic() < end:
            parts = [repeat.proposal for repeat in journal.repeats(state)]
            _settle(state, parts, trials, measurer)


def _settle(state: TaskState, parts: Sequence[Proposal], trials: Trials, measurer: Rounds) -> bool:
    """Time who takes part in turn; return whether there was time for it."""
    if parts:
        try:
            found = measurer.rounds([trials.candidate(state, part) for part in parts], ROUNDS)
        except TurnTimeout:
            return False
        trials.journal.add_repeats(state, dict(zip(parts, found, strict=True)))
    return True


def _parts(
    state: TaskState,
    journal: Journal,
    others: tuple[PlainLoops, Single],
    guests: Sequence[Proposal],
) -> list[Proposal]:
    """Return who takes part: the fastest so far, each schedule once; nobody without a record."""
    plain, single = others
    timed = list(dict.fromkeys(one.proposal for one in journal.ranked(state)))
    some = [*timed[:_BEST], *(other for other in timed[_BEST:] if other == state.untuned)]
    some += [guest for guest in guests if some and guest not in some]
    alone = single(state, some[0]) if some else None
    if alone is not None and all(part.schedule != alone for part in some):
        some.append(Proposal(some[0].by, alone))
    for loops in plain(state) if some and state.admits_plain else ():
        if all(part.schedule != loops.schedule for part in some):
            some.append(loops)
    return some


def on_one_thread(state: TaskState, fastest: Proposal, replay: Replay) -> str | None:
    """Return the fastest schedule of a task with all loops on one thread.

    None where it takes long, has one thread anyway, or is a trace.
    """
    if state.best > _SMALL:
        return None
    schedule = one_thread.setting(fastest.schedule)
    try:
        made = replay(state.task.name, *fastest) if schedule is not None else None
    except (Refused, Failed):
        return None
    return schedule if made is not None and one_thread.without_threads(made) else None
