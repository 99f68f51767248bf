"""The step of tuning that decides finalists inside the built model, if that can run here."""

from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Final

import tvm

from autopipe.artifacts.lowering import WHOLE
from autopipe.compiler import module_io
from autopipe.measure.in_model import InModel, ModelSource
from autopipe.pipeline.events import Progress, Warn
from autopipe.processes.contained import Failed
from autopipe.processes.failure import How
from autopipe.tuning.confirm import confirm
from autopipe.tuning.final_models import Limits, TooLate, Wins
from autopipe.tuning.finalists import Finalists, finalists, others
from autopipe.tuning.finals import Decided, Finals
from autopipe.tuning.journal import Proposal
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.tools import Tools

_SHORTEST: Final = 3.0
"""Seconds in which no model is built and run often enough."""


def decide(states: Sequence[TaskState], tools: Tools) -> Decided | None:
    """Decide who wins each task inside the model; None where that can not be, or is not worth it.

    A model with open sizes is several models, and this clock does not see a GPU: there the trials
    decide, and of kernels that are timed as in a model none wins without its threads.
    """
    found = _decided(states, tools)
    if found is None and tools.touched and tools.journal.alone_wins:
        tools.journal.alone_wins = False
        confirm(states, tools.journal, tools.inspector, tools.maker)
    return found


def _decided(states: Sequence[TaskState], tools: Tools) -> Decided | None:
    end = monotonic() + tools.finals
    entered = finalists(states, tools) if tools.finals >= _SHORTEST else []
    if tools.lowered is None or not entered:
        return None
    tools.emit(Progress(stage="tune", message="building the model with its finalists"))
    source = _source(module_io.load_module(tools.lowered / WHOLE), entered, tools)
    limits = Limits(end - monotonic(), tools.turn.taken, partial(_right, states, tools))
    try:
        with InModel(source, tools.finals) as models:
            found = Finals(models, tools.every, entered, limits).decide()
    except TooLate:
        _give_up(tools, "there is no time to run the model with its finalists")
        return None
    except Failed as error:
        if error.how is How.HUNG:
            _give_up(tools, "there is no time to build the model")
        else:
            text = f"the trials decide who wins, for the model with their finalists failed: {error}"
            tools.emit(Warn(stage="tune", message=text))
        return None
    finally:
        tools.journal.decided.clear()
    tools.journal.decided.update(found.winners)
    confirm(states, tools.journal, tools.inspector, tools.maker)
    return found


def _give_up(tools: Tools, why: str) -> None:
    tools.emit(Progress(stage="tune", message=f"the trials decide who wins: {why}"))


def _source(lowered: tvm.IRModule, entered: Sequence[Finalists], tools: Tools) -> ModelSource:
    known = {entry.state.task.name for entry in entered}
    rest = [task for task in tools.every if task.name not in known]
    alone = others(rest, tools)
    bodies = {name: (alone[task.name],) for task in rest for name in task.functions}
    bodies |= {name: one.modules for one in entered for name in one.state.task.functions}
    return ModelSource(lowered, bodies, tools.conditions.target, tools.conditions.hardware.cores)


def _right(states: Sequence[TaskState], tools: Tools, wins: Wins) -> Iterator[str]:
    """Have new winners checked as all winners are; yield the workloads of those that still win."""
    journal = tools.journal
    journal.decided.update(wins)
    confirm(states, journal, tools.inspector, tools.maker)
    for state in states:
        name, best = state.task.workload, journal.best(state)
        if best is not None and Proposal.of(best.record) == wins.get(name):
            yield name
