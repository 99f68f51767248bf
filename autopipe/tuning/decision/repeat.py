"""Time the fastest schedules of tasks that no model has decided once more, in turn.

Trials are measured one after the other over minutes, and a machine is never alone for so long. Here
all are timed in turn, so that what else goes on falls on each of them, and the median of the rounds
is evidence. The untuned schedule takes part, and so do schedules of no search (`Extras`).

Where finalists take turns inside the model, nothing is repeated. What is left are tasks on a GPU, a
farm or a device, with dynamic shapes, or of a model that there was no time to build.
"""

from collections.abc import Sequence
from typing import Final

from autopipe.pipeline.counted import Watch
from autopipe.tuning.deadline import REPEATS, Deadline
from autopipe.tuning.decision.extras import Extras
from autopipe.tuning.decision.task_timer import TaskTimer
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.runners.runner import Rounds
from autopipe.tuning.task_state import TaskState, rank_by_share
from autopipe.tuning.trials import Trials

ROUNDS: Final = 3

_BEST: Final = 2
"""Schedules of the trials that take part."""


def measure_repeats(
    trials: Trials, *, runner: Rounds, extras: Extras, deadline: Deadline, watch: Watch
) -> None:
    """Time the fastest schedules of each task that has a record in turn.

    The heaviest tasks come first, as far as there is time: of the others, the trials decide.
    """
    journal = trials.journal
    timer = TaskTimer(trials, runner, rounds=ROUNDS, deadline=deadline, skipped=REPEATS)
    for state in watch.each("tasks timed once more", rank_by_share(trials.states)):
        parts = _select_parts(state, journal, extras)
        if journal.recall_repeats(state, parts):
            continue
        if results := timer.time(state, parts):
            journal.add_repeats(state, results)


def _select_parts(state: TaskState, journal: Journal, extras: Extras) -> list[Proposal]:
    """Return the schedules that take part, each once; none of a task without a record."""
    proposals = list(dict.fromkeys(one.proposal for one in journal.ranked(state)))
    if not proposals:
        return []
    parts = [*proposals[:_BEST], *(other for other in proposals[_BEST:] if other == state.untuned)]
    parts = list(dict.fromkeys((*parts, *extras.guests.get(state.task.workload, ()))))
    for extra in extras.list_plain(state):
        if all(part.schedule != extra.schedule for part in parts):
            parts.append(extra)
    return parts


def find_undecided(states: Sequence[TaskState], journal: Journal) -> list[TaskState]:
    """Return the states of the tasks that were neither timed inside the model nor repeated."""
    return [
        state
        for state in states
        if not any(one.place in {"in_model", "repeat"} for one in journal.evidence(state))
    ]
