"""One run of tuning, from artifact to artifact, step by step."""

from collections.abc import Sequence
from typing import Final

from autopipe.environment.environment import version
from autopipe.pipeline.events import Progress, Warn
from autopipe.pipeline.stage import Context
from autopipe.tuning.deadline import CHECKS, TASKS
from autopipe.tuning.first_round import reweigh, start
from autopipe.tuning.in_model import decide
from autopipe.tuning.over_sizes import best, families, guests
from autopipe.tuning.prepare import prepare
from autopipe.tuning.price import leave_out_libraries
from autopipe.tuning.results import Results
from autopipe.tuning.runoff import settle
from autopipe.tuning.search import search
from autopipe.tuning.seeds import seed
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.tools import Tools, TuningPlan, open_tools

_NEEDED: Final = ("xgboost-cpu", "psutil", "cloudpickle")
"""Packages that TVM imports while it tunes, and does not ask for when it is installed."""


def tune(plan: TuningPlan, ctx: Context) -> str:
    """Tune the kept tasks of `ctx.inputs["tasks"]`; return one line for people.

    Writes `records.jsonl` and `tuning.json`. Raises SetupError if a package is missing, StoreError,
    and StageError if not a single candidate could be measured.
    """
    for package in _NEEDED:
        version(package)
    with open_tools(plan, ctx) as opened:
        tools = opened
        states = prepare(tools, {task.index: task.share for task in tools.tasks})
        begun = tools.journal.session.elapsed
        start(states, tools)
        tools = tools.keeping_back(tools.journal.session.elapsed - begun)
        states = reweigh(states, tools)
        known = _known(states, tools)
        seed(states, tools)
        ended = search(states, tools)
        leave_out_libraries(states, tools)
        found = families(tools.open_tasks, states)
        tools.deadline.kept = tools.finals
        settle(states, tools, guests(found, tools.journal, tools.maker))
        tools.deadline.kept = 0.0
        decided = decide(states, tools)
        _count_left_out(states, tools)
        results = Results(
            states, tools.journal, tools.failures, best(found, tools.journal), decided
        )
        results.left_out = tools.deadline.told()
        return _write(results, tools, ctx, ended) + known + _unsteady(states, tools)


def _count_left_out(states: Sequence[TaskState], tools: Tools) -> None:
    """Count the tasks and winners that there was no time for."""
    journal, left_out = tools.journal, tools.deadline.left_out
    winners = [(state, journal.winner(state)) for state in states]
    left_out[CHECKS] = sum(
        winner is not None and not journal.has_verdict(state, winner.proposal, "passed")
        for state, winner in winners
    )
    if tools.trials(states).late():
        left_out[TASKS] = sum(not state.trials for state in states)


def _write(results: Results, tools: Tools, ctx: Context, ended: str) -> str:
    """Write the artifact; return what it comes to."""
    results.write(ctx.out, ended)
    if damaged := tools.journal.store.damaged:
        text = f"{ctx.records}: skipped {damaged} damaged records"
        ctx.emit(Warn(stage="tune", message=text))
    return results.summary(ended)


def _known(states: Sequence[TaskState], tools: Tools) -> str:
    """Tell, and return for the summary, how much earlier runs have measured of these tasks."""
    counts = [tools.journal.earlier(state) for state in states]
    tasks = sum(map(bool, counts))
    if not tasks:
        return ""
    text = f"known: {sum(counts)} records of earlier runs for {tasks} of {len(states)} tasks"
    tools.emit(Progress(stage="tune", message=text))
    return f"; {text}"


def _unsteady(states: Sequence[TaskState], tools: Tools) -> str:
    winners = [tools.journal.winner(state) for state in states]
    count = sum(winner.is_unsteady for winner in winners if winner)
    return f"; the times of {count} are unsteady: the machine was busy" if count else ""
