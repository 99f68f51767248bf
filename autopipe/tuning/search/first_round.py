"""The first round of tuning: initial candidates of all tasks are measured before any search.

A task is built with one of these anyway, so that a record can only be faster; the heaviest task
comes first, so that even a short budget helps.
"""

import math
from collections.abc import Sequence

from autopipe.tuning.check_schedules import Checks, check_winners
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.task_state import TaskState, rank_by_share
from autopipe.tuning.trials import Trials


def run_first_round(trials: Trials, checks: Checks) -> None:
    """Measure the initial candidates, and check the fastest of each task."""
    measure_starts(trials)
    check_winners(trials.states, checks)


def measure_starts(trials: Trials) -> None:
    """Time the unmeasured initial candidates of all tasks within the budget."""
    trials.each(_list_unmeasured(trials))
    for state in trials.states:
        if state.starts:
            state.history.append(state.best)


def measure_shares(states: Sequence[TaskState], journal: Journal) -> dict[int, float]:
    """Return each task's part of the model's time, by its index.

    As measured with its fastest initial candidate; a task without keeps the estimated part.
    """
    times = {}
    for state in states:
        start_times = [
            row.record.median
            for row in journal.rows(state)
            if Proposal.of(row.record) in state.starts.items()
        ]
        if start_times and min(start_times) < math.inf:
            times[state.task.index] = state.task.calls * min(start_times)
    tasks = [state.task for state in states]
    measured_share = sum(task.share for task in tasks if task.index in times)
    total = sum(times.values())
    return {
        t.index: measured_share * times[t.index] / total if t.index in times else t.share
        for t in tasks
    }


def _list_unmeasured(trials: Trials) -> list[tuple[TaskState, Proposal]]:
    """List the unmeasured initial candidates, the heaviest task first."""
    proposals = []
    for state in rank_by_share(trials.states):
        tried_proposals = trials.journal.tried(state)
        fresh = [Proposal(*start) for start in state.starts.items() if start not in tried_proposals]
        proposals += [(state, proposal) for proposal in fresh[: max(0, trials.allowance(state))]]
    return proposals
