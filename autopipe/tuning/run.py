"""One run of tuning, from artifact to artifact, step by step."""

from collections.abc import Sequence
from typing import Final

from autopipe.environment.environment import version
from autopipe.pipeline.events import Progress, Warn
from autopipe.pipeline.stage import Context
from autopipe.schedules.policy import SERIAL
from autopipe.tuning.confirm import confirm
from autopipe.tuning.first_round import shares, start
from autopipe.tuning.prepare import prepare
from autopipe.tuning.results import Results
from autopipe.tuning.runoff import run_off
from autopipe.tuning.search import search
from autopipe.tuning.seeds import seed
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.tools import Plan, Tools, prepared
from autopipe.tuning.worth import set_aside

_NEEDED: Final = ("xgboost-cpu", "psutil", "cloudpickle")
"""Packages that TVM imports while it tunes, and does not ask for when it is installed."""


def tune(plan: Plan, ctx: Context) -> str:
    """Tune the kept tasks of `ctx.inputs["tasks"]`; return one line for people.

    Writes `records.jsonl` and `tuning.json`. Raises SetupError if a package is missing, StoreError,
    and StageError if not a single candidate could be measured.
    """
    for package in _NEEDED:
        version(package)
    with prepared(plan, ctx) as tools:
        states = prepare(tools, {task.index: task.share for task in tools.tasks})
        _start(states, tools)
        states = _reweigh(states, tools)
        known = _known(states, tools)
        seed(tools.trials(states), tools.maker)
        ended = search(states, tools)
        _settle(states, tools)
        summary = _write(states, tools, ctx, ended)
        return f"{summary}{known}{_unsteady(states, tools)}"


def _start(states: Sequence[TaskState], tools: Tools) -> None:
    """Measure what needs no search, and check who is ahead then."""
    start(tools.trials(states))
    confirm(states, tools.journal, tools.inspector, tools.maker)


def _reweigh(states: Sequence[TaskState], tools: Tools) -> list[TaskState]:
    """Prepare the tasks anew by their measured shares, which rules may go by.

    Those that are not worth a search are set aside.
    """
    measured = shares(states, tools.journal)
    again = prepare(tools, measured, before=states)
    _start(again, tools)
    set_aside(again, tools.plan.judge)
    return again


def _settle(states: Sequence[TaskState], tools: Tools) -> None:
    """Have who looks fastest run against the others once more; the winners are right schedules."""

    def serial(state: TaskState) -> str | None:
        plans = tools.maker.plans(state.task.name, SERIAL.engine)
        return next((planned.schedule for planned in plans), None)

    confirm(states, tools.journal, tools.inspector, tools.maker)
    run_off(tools.trials(states), tools.measurer, serial)
    confirm(states, tools.journal, tools.inspector, tools.maker)


def _write(states: Sequence[TaskState], tools: Tools, ctx: Context, ended: str) -> str:
    """Write the artifact; return what it comes to."""
    results = Results(states, tools.journal, tools.failures)
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
    rows = [tools.journal.best(state) for state in states]
    count = sum(row.record.unsteady for row in rows if row)
    return f"; the times of {count} are unsteady: the machine was busy" if count else ""
