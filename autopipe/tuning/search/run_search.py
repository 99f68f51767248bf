"""The search step: engines propose schedules of the tasks, until the budget is spent."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autopipe.processes.contained import Failed
from autopipe.safety.failures import KnownFailure
from autopipe.safety.job import Piece
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.engines.registry import load_engine_makers
from autopipe.schedules.policy import Contender
from autopipe.tuning.check_schedules import Checks
from autopipe.tuning.progress import ProgressReporter
from autopipe.tuning.search.concurrent_runs import ConcurrentRuns
from autopipe.tuning.search.loop import TuningLoop, choose_batch_size
from autopipe.tuning.search.scheduler import SCHEDULERS
from autopipe.tuning.search.searcher import Searcher, make_search_key
from autopipe.tuning.search.worth import SearchWorth
from autopipe.tuning.setup import Setup, TuningPlan
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

_KEPT_BUSY: Final = 8
"""Candidates on a farm that one search may be expected to keep coming."""

_LEARNED: Final = 500
"""Trials that a process of searches is to have at least. The first 48 of each are by chance."""


def run_search(
    trials: Trials, setup: Setup, *, progress: ProgressReporter, worth: SearchWorth
) -> str:
    """Spend the remaining budget on searches; return the reason that they ended.

    A search that failed in an earlier run is tried once, or not at all.
    """
    states, plan, checks = trials.states, setup.plan, setup.checks
    failures = checks.failures
    batch = choose_batch_size(plan.tuning.budget.trials, len(states), plan.tuning.batch)
    request = _SearchRequest(
        plan, batch, _count_processes(trials.width, plan), checks, trials.conditions
    )
    problems = {
        make_search_key(state, by): request.problem(state, by)
        for state in states
        for by in state.bandit.arms
    }
    suspects, concurrent_runs = _find_suspects(states, request), ConcurrentRuns(checks.journal)
    searcher = Searcher(
        load_engine_makers((by.engine for _, by in problems), trials.conditions), problems,
        concurrent_runs.known, plan.judge.min_space if plan.judge else 1,
        [make_search_key(*suspect) for suspect in suspects], left=trials.seconds_left,
        process_count=request.many, news=concurrent_runs.news,
    )  # fmt: skip
    setup.bench.turn.settle = searcher.wait_until_idle

    def failed(state: TaskState, by: Contender, error: Failed) -> None:
        never = not state.bandit.arms[by].stats.batches
        failures.add(request.piece(state, by), error, remembered=never)

    try:
        return TuningLoop(
            trials, SCHEDULERS[plan.scheduler], batch, searcher, failed, worth.set_aside,
        ).run()  # fmt: skip
    finally:
        setup.bench.turn.settle = lambda: None
        searcher.close()
        for state, by in suspects:
            if state.bandit.arms[by].stats.batches:
                failures.passed(request.piece(state, by))
        if states:
            progress.emit()


@dataclass(frozen=True, slots=True)
class _SearchRequest:
    """Parameters of the requests to engines."""

    plan: TuningPlan
    batch: int
    many: int
    """How many tasks are searched at a time."""
    checks: Checks
    conditions: Conditions

    def problem(self, state: TaskState, by: Contender) -> Problem:
        """Build the problem of an engine; measured schedules are added later."""
        module = self.checks.maker.implementations(state.task.name)[by.implementation]
        tuning = self.plan.tuning
        threads = 1 if self.many > 1 else None
        return Problem(
            state.task, module, self.conditions, (), self.batch, tuning.seed, tuning.tuner, threads
        )  # fmt: skip

    def piece(self, state: TaskState, by: Contender) -> Piece:
        """Build the piece of a search, with all that is needed to reproduce its failure."""
        schedules = self.checks.journal.known(state, by.implementation)
        known_times = [(known.schedule, str(known.seconds)) for known in schedules]
        tuning = self.plan.tuning
        problem = {
            "task": state.task.model_dump(mode="json"), "batch": self.batch,
            "seed": tuning.seed, "tuner": tuning.tuner, "known": known_times,
        }  # fmt: skip
        return Piece("searching", state.task.name, state.module, *by, problem=problem)


def _count_processes(width: int, plan: TuningPlan) -> int:
    """Return how many tasks are searched at a time: one where this machine measures, too.

    On a farm they are as many as this machine has cores, as far as there are workers to keep busy,
    and trials for each to learn from: they do not learn from each other.
    """
    useful = min(math.ceil(width / _KEPT_BUSY), plan.tuning.budget.trials // _LEARNED)
    return max(1, min(len(os.sched_getaffinity(0)), useful)) if width > 1 else 1


def _find_suspects(
    states: Sequence[TaskState], request: _SearchRequest
) -> list[tuple[TaskState, Contender]]:
    """Leave out searches that failed in earlier runs; return those to be tried only once."""
    suspects: list[tuple[TaskState, Contender]] = []
    failures = request.checks.failures
    for state in states if failures.hopeless else ():
        for by, arm in state.bandit.arms.items():
            try:
                if state.stopped is None and failures.suspect(request.piece(state, by)):
                    suspects.append((state, by))
            except KnownFailure as known:
                arm.out = str(known)
    return suspects
