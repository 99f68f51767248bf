"""One run of tuning, from artifact to artifact, step by step."""

import math
from collections.abc import Sequence
from typing import Final

from autopipe.environment.environment import find_version
from autopipe.pipeline.events import Progress, TuningHeadroom, Warn
from autopipe.pipeline.stage import Context
from autopipe.tuning.deadline import CHECKS, TASKS
from autopipe.tuning.decision.decide import decide_tasks
from autopipe.tuning.decision.over_sizes import find_families, pick_settings
from autopipe.tuning.journal import Journal
from autopipe.tuning.results import Results
from autopipe.tuning.search.bounds import estimate_bounds
from autopipe.tuning.search.first_round import measure_shares, run_first_round
from autopipe.tuning.search.library_cost import leave_out_libraries
from autopipe.tuning.search.prepare import prepare_tasks
from autopipe.tuning.search.run_search import run_search
from autopipe.tuning.search.seeds import measure_seeds
from autopipe.tuning.search.worth import SearchWorth
from autopipe.tuning.setup import Setup, TuningPlan, open_setup
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

_TUNING_PACKAGES: Final = ("xgboost-cpu", "psutil", "cloudpickle")
"""Packages that TVM imports while it tunes, and does not ask for when it is installed."""


def tune_tasks(plan: TuningPlan, ctx: Context) -> str:
    """Tune the kept tasks of `ctx.inputs["tasks"]`; return one line for people.

    Writes `records.jsonl` and `tuning.json`. Raises SetupError if a package is missing, StoreError,
    and StageError if not a single candidate could be measured.
    """
    for package in _TUNING_PACKAGES:
        find_version(package)
    with open_setup(plan, ctx) as setup:
        tasks, checks, deadline = setup.tasks, setup.checks, setup.deadline
        journal = checks.journal
        states, worth = _prepare_states(setup)
        earlier = _report_earlier(states, setup)
        measure_seeds(setup.open_trials(states), checks.maker)
        progress = setup.report_progress(states)
        trials = setup.open_trials(states, progress)
        end_reason = run_search(trials, setup, progress=progress, worth=worth)
        price = plan.tuning.library_price
        leave_out_libraries(states, journal=journal, price=price, emit=setup.emit)
        families = find_families(tasks.dynamic, states)
        comparisons = decide_tasks(trials, families, setup)
        _count_left_out(states, trials, setup)
        settings = pick_settings(families, journal)
        results = Results(worth, journal, checks.failures, settings, comparisons)
        results.left_out = deadline.list_skipped()
        return (
            _write_artifact(results, journal, ctx, end_reason)
            + earlier
            + _report_unsteady(states, journal)
        )


def _prepare_states(setup: Setup) -> tuple[list[TaskState], SearchWorth]:
    """Measure the initial candidates; return the tasks by their measured shares of the time.

    Rules may go by a share. Those in which a search can gain too little are set aside.
    """
    tasks, checks, plan = setup.tasks, setup.checks, setup.plan
    left = setup.deadline.left() + setup.deadline.kept
    text = f"planning the first schedules of {len(tasks.tuned)} tasks"
    remaining = left if left < math.inf else None
    setup.emit(Progress(stage="tune", message=text, remaining=remaining))
    shares = {task.index: task.share for task in tasks.tuned}
    states = prepare_tasks(tasks, shares, policy=plan.policy, checks=checks)
    start = checks.journal.session.elapsed
    run_first_round(setup.open_trials(states), checks)
    setup.deadline.keep_back(plan.tuning.budget, checks.journal.session.elapsed - start)
    shares = measure_shares(states, checks.journal)
    states = prepare_tasks(tasks, shares, policy=plan.policy, checks=checks, before=states)
    run_first_round(setup.open_trials(states), checks)
    bounds = estimate_bounds(states, setup.bench.conditions)
    worth = SearchWorth.of(states, plan.judge, bounds)
    worth.set_aside()
    return states, worth


def _count_left_out(states: Sequence[TaskState], trials: Trials, setup: Setup) -> None:
    """Count the tasks and winners that there was no time for."""
    journal, left_out = setup.checks.journal, setup.deadline.left_out
    winners = [(state, journal.winner(state)) for state in states]
    left_out[CHECKS] = sum(
        winner is not None and not journal.has_verdict(state, winner.proposal, "passed")
        for state, winner in winners
    )
    if trials.late():
        left_out[TASKS] = sum(not state.trials for state in states)


def _write_artifact(results: Results, journal: Journal, ctx: Context, end_reason: str) -> str:
    """Write the artifact; return its one-line summary."""
    results.write(ctx.out, end_reason)
    if headroom := results.list_headroom(end_reason):
        ctx.emit(TuningHeadroom(stage="tune", tasks=headroom))
    if damaged_count := journal.store.damaged:
        text = f"{ctx.records}: skipped {damaged_count} damaged records"
        ctx.emit(Warn(stage="tune", message=text))
    return results.summary(end_reason)


def _report_earlier(states: Sequence[TaskState], setup: Setup) -> str:
    """Report, and return for the summary, how many records of these tasks earlier runs left."""
    counts = [setup.checks.journal.earlier(state) for state in states]
    tasks = sum(map(bool, counts))
    if not tasks:
        return ""
    text = f"known: {sum(counts)} records of earlier runs for {tasks} of {len(states)} tasks"
    setup.emit(Progress(stage="tune", message=text))
    return f"; {text}"


def _report_unsteady(states: Sequence[TaskState], journal: Journal) -> str:
    winners = [journal.winner(state) for state in states]
    count = sum(winner.is_unsteady for winner in winners if winner)
    return f"; the times of {count} are unsteady: the machine was busy" if count else ""
