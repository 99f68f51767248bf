"""The step of tuning that decides finalists inside the built model, if that can run here."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

import tvm

from autopipe.measure.in_model import InModel, ModelSource
from autopipe.pipeline.events import Progress, Warn
from autopipe.processes.contained import Failed
from autopipe.processes.failure import How
from autopipe.tuning.check_schedules import check_proposals, check_winners
from autopipe.tuning.deadline import COMPARISONS
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.final_models import Limits, TooLate
from autopipe.tuning.finalists import Finalists, finalists, others
from autopipe.tuning.finals import Decided, Finals
from autopipe.tuning.journal import Journal
from autopipe.tuning.runoff import exclude_one_thread
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
        seconds = min(tools.finals / len(played), tools.deadline.left() / (len(played) - at))
        decided = _decided(model, done, states, tools, seconds)
        if decided is not None:
            found.append(decided)
            _append(
                decided, [state for state in states if state.task.workload not in done], journal
            )
            done |= {task.workload for task in model.tasks} if decided.evidence else set()
    _keep_threads([state for state in states if state.task.workload not in done], tools)
    check_winners(states, journal, tools.inspector, tools.maker)
    return tuple(found)


def _append(decided: Decided, states: Sequence[TaskState], journal: Journal) -> None:
    for state in states:
        journal.append(state, *decided.evidence.get(state.task.workload, ()))


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
    entered = _enter(_called_in(model, states), tools, done)
    if not entered:
        return None
    at = _at(model)
    tools.emit(Progress(stage="tune", message=f"building the model with its finalists{at}"))
    source = _source(model, entered, tools)
    limits = Limits(
        end - monotonic(),
        tools.turn.taken,
        partial(_check, [entry.state for entry in entered], tools),
    )
    try:
        with InModel(source, tools.deadline.left) as built:
            try:
                found = Finals(built, model.tasks, entered, limits).decide()
            except TooLate:
                _give_up(tools, f"there is no time to run the model with its finalists{at}")
                _keep_threads([entry.state for entry in entered], tools)
                winners = [_hold_winner(entry, tools.journal) for entry in entered]
                found = Finals(built, model.tasks, winners, limits).tell()
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


def _enter(states: Sequence[TaskState], tools: Tools, done: Collection[str]) -> list[Finalists]:
    """Return the finalists of each task, of which the incumbents have passed their check."""
    entered = finalists(states, tools, done)
    held = {entry.state.task.workload: entry.incumbent for entry in entered if entry.held}
    passed = set(_check(states, tools, held))
    return entered if passed == held.keys() else finalists(states, tools, done)


def _keep_threads(states: Sequence[TaskState], tools: Tools) -> None:
    if tools.touched:
        exclude_one_thread(states, tools.journal)


def _hold_winner(entry: Finalists, journal: Journal) -> Finalists:
    """Return finalists of which the winner of the trials is the incumbent."""
    winner = journal.winner(entry.state)
    won = winner.proposal if winner is not None else None
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


def _check(
    states: Sequence[TaskState], tools: Tools, proposals: Mapping[str, Proposal]
) -> Iterator[str]:
    """Check a schedule of each workload as winners are; yield the workloads where it passed."""
    journal = tools.journal
    pairs = [(s, proposals[s.task.workload]) for s in states if s.task.workload in proposals]
    check_proposals(pairs, journal, tools.inspector, tools.maker)
    for state, proposal in pairs:
        if not journal.has_verdict(state, proposal, "failed"):
            yield state.task.workload
