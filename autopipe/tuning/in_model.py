"""The step of tuning that decides finalists inside the built model, if that can run here."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

import tvm

from autopipe.measure.in_model import InModel, ModelSource
from autopipe.pipeline.events import Progress, Warn
from autopipe.processes.contained import Failed
from autopipe.processes.failure import How
from autopipe.tuning.confirm import confirm
from autopipe.tuning.deadline import COMPARISONS
from autopipe.tuning.final_models import Limits, TooLate, Wins
from autopipe.tuning.finalists import Finalists, finalists, others
from autopipe.tuning.finals import Decided, Finals
from autopipe.tuning.journal import Journal, Proposal
from autopipe.tuning.sized_models import SizedModel, models
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.tools import Tools

_SHORTEST: Final = 3.0
"""Seconds in which no model is built and run often enough."""


def decide(states: Sequence[TaskState], tools: Tools) -> tuple[Decided, ...]:
    """Decide who wins each task inside the model, at each of its likely sizes; return how it went.

    That can not be everywhere, or is not worth it: this clock does not see a GPU. There the trials
    decide, and of kernels that are timed as in a model none wins without its threads.
    """
    journal, played = tools.journal, _models(tools)
    found: list[Decided] = []
    done: set[str] = set()
    for at, model in enumerate(played):
        before = dict(journal.decided)  # who is tried in between, and does not win, is none
        seconds = min(tools.finals / len(played), tools.deadline.left() / (len(played) - at))
        decided = _decided(model, done, states, tools, seconds)
        journal.decided = before | dict(decided.winners if decided else {})
        if decided is not None:
            found.append(decided)
            done |= {task.workload for task in model.tasks} if decided.played else set()
    _keep_threads({state.task.workload for state in states} - done, tools)
    confirm(states, journal, tools.inspector, tools.maker)
    return tuple(found)


def _models(tools: Tools) -> Sequence[SizedModel]:
    if tools.lowered is None or tools.finals < _SHORTEST:
        return ()
    if tools.deadline.left() < _SHORTEST:
        tools.deadline.left_out[COMPARISONS] += 1
        return ()
    return list(models(tools.lowered, tools.every))


def _decided(
    model: SizedModel,
    done: Collection[str],
    states: Sequence[TaskState],
    tools: Tools,
    seconds: float,
) -> Decided | None:
    """Decide who wins the tasks of a model that are not `done`; None if nothing came of it."""
    end = monotonic() + seconds
    entered = finalists(_called_in(model, states), tools, done)
    if not entered:
        return None
    at = _at(model)
    tools.emit(Progress(stage="tune", message=f"building the model with its finalists{at}"))
    source = _source(model, entered, tools)
    limits = Limits(end - monotonic(), tools.turn.taken, partial(_right, states, tools))
    try:
        with InModel(source, tools.deadline.left) as built:
            try:
                found = Finals(built, model.tasks, entered, limits).decide()
            except TooLate:
                _give_up(tools, f"there is no time to run the model with its finalists{at}")
                _keep_threads({entry.state.task.workload for entry in entered}, tools)
                won = [_who_won(entry, tools.journal) for entry in entered]
                found = Finals(built, model.tasks, won, limits).tell()
    except TooLate:
        return None
    except Failed as error:
        if error.how is How.HUNG:
            _give_up(tools, f"there is no time to build the model{at}")
        else:
            text = f"the trials decide who wins, for the model with their finalists{at} failed: "
            tools.emit(Warn(stage="tune", message=f"{text}{error}"))
        return None
    if not model.sizes:
        return found
    return replace(found, report=found.report.model_copy(update={"sizes": dict(model.sizes)}))


def _called_in(model: SizedModel, states: Sequence[TaskState]) -> list[TaskState]:
    """Return the states of the tasks of a model, as they are named and called in it."""
    tasks = {task.workload: task for task in model.tasks}
    return [replace(s, task=tasks[s.task.workload]) for s in states if s.task.workload in tasks]


def _keep_threads(workloads: Collection[str], tools: Tools) -> None:
    """Have nobody win these on one thread, which is faster only where threads have to wake up."""
    if tools.touched:
        tools.journal.threaded.update(workloads)


def _who_won(entry: Finalists, journal: Journal) -> Finalists:
    """Return finalists of whom the one holds the place that trials alone let win."""
    best = journal.best(entry.state)
    won = Proposal.of(best.record) if best is not None else None
    return replace(entry, held=entry.proposals.index(won) if won in entry.proposals else 0)


def _at(model: SizedModel) -> str:
    """Say which sizes a model has."""
    return "".join(f", {name} {size}" for name, size in model.sizes.items())


def _give_up(tools: Tools, why: str) -> None:
    tools.deadline.left_out[COMPARISONS] += 1
    tools.emit(Progress(stage="tune", message=f"the trials decide who wins: {why}"))


def _source(model: SizedModel, entered: Sequence[Finalists], tools: Tools) -> ModelSource:
    known = {entry.state.task.name for entry in entered}
    rest = [task for task in model.tasks if task.name not in known]
    alone = others(rest, tools)
    bodies: dict[str, Sequence[tvm.IRModule]]
    bodies = {name: (alone[task.name],) for task in rest for name in task.functions}
    bodies |= {name: one.modules for one in entered for name in one.state.task.functions}
    conditions = tools.conditions
    return ModelSource(model.module, bodies, conditions.target, conditions.hardware.cores)


def _right(states: Sequence[TaskState], tools: Tools, wins: Wins) -> Iterator[str]:
    """Have new winners checked as all winners are; yield the workloads of those that still win."""
    journal = tools.journal
    journal.decided.update(wins)
    confirm(states, journal, tools.inspector, tools.maker)
    for state in states:
        name, best = state.task.workload, journal.best(state)
        if best is not None and Proposal.of(best.record) == wins.get(name):
            yield name
