"""The search step: engines propose schedules of the tasks, until the budget is spent."""

import math
import os
from collections.abc import Sequence
from typing import Final

from autopipe.processes.contained import Failed
from autopipe.safety.failures import KnownFailure
from autopipe.safety.job import Piece
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.engines.registry import engines
from autopipe.schedules.policy import Contender
from autopipe.tuning.loop import TuningLoop
from autopipe.tuning.others import Others
from autopipe.tuning.scheduler import SCHEDULERS
from autopipe.tuning.searcher import Searcher, key
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.tools import Tools

_KEPT_BUSY: Final = 8
"""Candidates on a farm that one search may be expected to keep coming."""

_LEARNED: Final = 500
"""Trials that a process of searches is to have at least. The first 48 of each are by chance."""


def search(states: Sequence[TaskState], tools: Tools) -> str:
    """Spend what is left of the budget on searches; return why that ended.

    A search that failed in an earlier run is tried once, or not at all.
    """
    plan, progress = tools.plan, tools.progress(states)
    problems = {
        key(state, by): _problem(state, by, tools)
        for state in states
        for by in state.contest.entries
    }
    suspects, many, others = _suspects(states, tools), _many(tools), Others(tools.journal)
    searcher = Searcher(
        engines((by.engine for _, by in problems), tools.conditions), problems,
        others.known, plan.judge.min_space if plan.judge else 1,
        [key(*suspect) for suspect in suspects], left=tools.trials(states).seconds_left, many=many,
        news=others.news,
    )  # fmt: skip

    def failed(state: TaskState, by: Contender, error: Failed) -> None:
        never = not state.contest.entries[by].form.batches
        tools.failures.add(_piece(state, by, tools), error, remembered=never)

    try:
        return TuningLoop(
            tools.trials(states, progress), SCHEDULERS[plan.scheduler], tools.batch, searcher,
            failed,
        ).run()  # fmt: skip
    finally:
        searcher.close()
        for state, by in suspects:
            if state.contest.entries[by].form.batches:
                tools.failures.passed(_piece(state, by, tools))
        if states:
            progress.emit()


def _many(tools: Tools) -> int:
    """Return how many tasks are searched at a time: one where this machine measures, too.

    On a farm they are as many as this machine has cores, as far as there are workers to keep busy,
    and trials for each to learn from: they do not learn from each other.
    """
    width, trials = tools.measurer.width, tools.plan.tuning.budget.trials
    useful = min(math.ceil(width / _KEPT_BUSY), trials // _LEARNED)
    return max(1, min(len(os.sched_getaffinity(0)), useful)) if width > 1 else 1


def _suspects(states: Sequence[TaskState], tools: Tools) -> list[tuple[TaskState, Contender]]:
    """Leave out searches that failed in earlier runs; return those to be tried only once."""
    found: list[tuple[TaskState, Contender]] = []
    for state in states if tools.failures.hopeless else ():
        for by, entry in state.contest.entries.items():
            try:
                if state.stopped is None and tools.failures.suspect(_piece(state, by, tools)):
                    found.append((state, by))
            except KnownFailure as known:
                entry.out = str(known)
    return found


def _problem(state: TaskState, by: Contender, tools: Tools) -> Problem:
    """Return what an engine is asked to schedule; what was measured before is told later."""
    module = tools.maker.implementations(state.task.name)[by.implementation]
    tuning = tools.plan.tuning
    threads = 1 if _many(tools) > 1 else None
    return Problem(
        state.task, module, tools.conditions, (), tools.batch, tuning.seed, tuning.tuner, threads
    )  # fmt: skip


def _piece(state: TaskState, by: Contender, tools: Tools) -> Piece:
    """Return the work of a search, with all that it takes to have it fail again."""
    known = [(known.schedule, str(known.seconds)) for known in tools.journal.known(state, by)]
    asked = {
        "task": state.task.model_dump(mode="json"), "batch": tools.batch,
        "seed": tools.plan.tuning.seed, "tuner": tools.plan.tuning.tuner, "known": known,
    }  # fmt: skip
    return Piece("searching", state.task.name, state.module, *by, problem=asked)
