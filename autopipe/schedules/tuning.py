"""Puts tuning together: tasks, engines, records and measurement, from artifact to artifact."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, Literal

import tvm

from autopipe.config import Tuning
from autopipe.config.schedules import Rule
from autopipe.measure.local import Local
from autopipe.measure.measurement import Candidate
from autopipe.pipeline.environment import version
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Facet
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import Store, Tally
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engine import Problem
from autopipe.schedules.engines import engines
from autopipe.schedules.fallback import fall
from autopipe.schedules.implementation import implementations
from autopipe.schedules.policy import engines_for
from autopipe.schedules.progress import Progress
from autopipe.schedules.replay import replay
from autopipe.schedules.results import Results
from autopipe.schedules.scheduler import SCHEDULERS, Standing
from autopipe.schedules.searcher import Arm, Searcher
from autopipe.schedules.tuner import Contender, Journal, Tuner, Work, batch_size
from autopipe.schedules.winners import confirm
from autopipe.task import Task

_NEEDED: Final = ("xgboost-cpu", "psutil", "cloudpickle")
"""Packages that TVM imports while it tunes, and does not ask for when it is installed."""

_NONE: Final = Tally(0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to tune."""

    tuning: Tuning
    rules: tuple[Rule, ...]
    fallback: tuple[str, ...]
    scheduler: Literal["gradient", "round_robin"]
    fast_algorithms: bool


def tune(plan: Plan, ctx: Context) -> str:
    """Tune the kept tasks of `ctx.inputs["tasks"]`; return one line for people.

    Raises SetupError if a package is missing, StoreError, and StageError if not a single candidate
    could be measured.
    """
    for package in _NEEDED:
        version(package)
    session = Session.resume(ctx.work)
    platform = Platform(*(_json(ctx.facts[f]) for f in (Facet.TARGET, Facet.TVM, Facet.DEVICE)))
    with Store.open(ctx.records, lambda text: ctx.emit(Warn(stage="tune", message=text))) as store:
        return _Tuning(plan, ctx, Journal(store, platform, session)).run()


class _Tuning:
    """One run of the stage."""

    def __init__(self, plan: Plan, ctx: Context, journal: Journal) -> None:
        self._plan = plan
        self._ctx = ctx
        self._journal = journal
        self._conditions = Conditions.of(
            ctx.facts[Facet.TARGET], fast_algorithms=plan.fast_algorithms
        )
        self._cores = int(str(ctx.facts[Facet.TARGET]["num_cores"]))
        self._arms: list[Arm] = []
        tasks = _kept_tasks(ctx.inputs["tasks"])
        self._batch = batch_size(plan.tuning.budget.trials, len(tasks), plan.tuning.batch)
        tallies = journal.store.trials(journal.session.name)
        self._works = [self._work(task, tallies.get(task.workload, _NONE)) for task in tasks]

    def run(self) -> str:
        """Tune, and write the artifact."""
        budget = self._plan.tuning.budget
        standings = [work.standing for work in self._works]
        progress = Progress(standings, budget.trials, self._journal.session, self._ctx.emit)
        measurer = Local(self._conditions.target, self._cores, self._plan.tuning.measure)
        searcher = self._searcher()
        try:
            ended = Tuner(
                self._works, SCHEDULERS[self._plan.scheduler], budget, self._batch, searcher,
                measurer, self._journal, progress.told,
            ).run()  # fmt: skip
        finally:
            searcher.close()
        if standings:
            progress.emit()
        confirm(self._works, self._journal, measurer, self._conditions, self._warn)
        results = Results(self._works, self._journal)
        results.write(self._ctx.out, ended)
        if damaged := self._journal.store.damaged:
            self._warn(f"{self._ctx.records}: skipped {damaged} damaged records")
        return results.summary(ended)

    def _warn(self, message: str) -> None:
        self._ctx.emit(Warn(stage="tune", message=message))

    def _searcher(self) -> Searcher:
        owners = {arm: (work, by) for work in self._works for arm, by in work.arms.items()}
        makers = engines((arm.engine for arm in self._arms), self._conditions)
        return Searcher(makers, self._arms, lambda arm: self._journal.known(*owners[arm]))

    def _work(self, task: Task, tally: Tally) -> Work:
        """Return a task as far as it has come, with an arm for each engine of the policy."""
        path = self._ctx.inputs["tasks"] / "workloads" / f"{task.workload}.json"
        text = path.read_text(encoding="utf-8")
        module = tvm.ir.load_json(text)
        best = self._journal.store.best(task.workload, text, self._journal.platform)
        standing = Standing(task, tally.trials, tally.failed)
        if best is not None:
            standing.best = best.record.median
        if tally.trials:
            standing.history.append(standing.best)
        engines = engines_for(task, self._plan.rules)
        if not engines:
            standing.stopped = "the policy gives it no engine"
        every = implementations(module, self._conditions)
        arms = {}
        for engine, (name, body) in product(engines, every.items()):
            arms[len(self._arms)] = Contender(engine, name)
            tuning = self._plan.tuning
            self._arms.append(
                Arm(
                    engine,
                    Problem(
                        task, body, self._conditions, (), self._batch, tuning.seed, tuning.tuner
                    ),
                )
            )

        def candidate(implementation: str, schedule: str) -> Candidate:
            return partial(replay, module, implementation, schedule, self._conditions)

        found = fall(self._plan.fallback, module, self._conditions)
        return Work(standing, text, candidate, (found,) if found.planned else (), arms)


def _kept_tasks(folder: Path) -> list[Task]:
    tasks = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    return [task for task in map(Task.model_validate, tasks) if task.dropped is None]


def _json(facts: Mapping[str, object]) -> str:
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))
