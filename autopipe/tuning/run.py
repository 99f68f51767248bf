"""Puts tuning together: tasks, engines, records and measurement, from artifact to artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import tvm

from autopipe.compiler.op_info import described
from autopipe.config import Tuning
from autopipe.config.tasks import Judge
from autopipe.environment.environment import version
from autopipe.environment.facet import Facet
from autopipe.measure.local import Local
from autopipe.measure.turn import Turn
from autopipe.pipeline.events import Progress as Said
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context
from autopipe.processes.contained import Failed
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import Store
from autopipe.safety.failures import Failures, Known, OnFailure
from autopipe.safety.inspection import Inspector
from autopipe.safety.job import Piece
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.registry import engines
from autopipe.schedules.policy import SERIAL, Contender, Policy
from autopipe.tasks.task import Task, read_tasks
from autopipe.tuning.confirm import confirm
from autopipe.tuning.first_round import measure, measure_starts, shares
from autopipe.tuning.journal import Journal
from autopipe.tuning.loop import Tuner, batch_size
from autopipe.tuning.prepare import Preparation
from autopipe.tuning.progress import Progress
from autopipe.tuning.results import Results
from autopipe.tuning.runoff import run_off
from autopipe.tuning.scheduler import SCHEDULERS
from autopipe.tuning.searcher import Searcher
from autopipe.tuning.seeds import seeds
from autopipe.tuning.task_state import Spending, Work
from autopipe.tuning.worth import set_aside

_NEEDED: Final = ("xgboost-cpu", "psutil", "cloudpickle")
"""Packages that TVM imports while it tunes, and does not ask for when it is installed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to tune."""

    tuning: Tuning
    policy: Policy
    scheduler: Literal["gradient", "round_robin"]
    fast_algorithms: bool
    judge: Judge | None = None
    """Which tasks are worth a search; null for all."""
    on_failure: OnFailure = "fallback"


def tune(plan: Plan, ctx: Context) -> str:
    """Tune the kept tasks of `ctx.inputs["tasks"]`; return one line for people.

    Raises SetupError if a package is missing, StoreError, and StageError if not a single candidate
    could be measured.
    """
    for package in _NEEDED:
        version(package)
    session = Session.resume(ctx.work, plan.tuning.budget.trials)
    platform = Platform.of(*(ctx.facts[f] for f in (Facet.TARGET, Facet.TVM, Facet.DEVICE)))
    with Store.open(ctx.records, lambda text: ctx.emit(Warn(stage="tune", message=text))) as store:
        _count(session, store, ctx)
        tuning = _Tuning(plan, ctx, Journal(store, platform, session))
        with session.kept(), tuning.maker:
            return tuning.run()


def _count(session: Session, store: Store, ctx: Context) -> None:
    """Have the store say how far the session has come, and warn where it has lost trials."""
    noted = session.trials
    session.trials = sum(tally.trials for tally in store.trials(session.name).values())
    lost = noted - session.trials
    if lost > 0:
        text = (
            f"{ctx.records} has {session.trials} of the {noted} trials that were measured before"
            f" the interruption: {lost} were lost or deleted, and are measured again"
        )
        ctx.emit(Warn(stage="tune", message=text))


class _Tuning:
    """One run of the stage."""

    def __init__(self, plan: Plan, ctx: Context, journal: Journal) -> None:
        self._plan = plan
        self._ctx = ctx
        self._journal = journal
        self._conditions = Conditions.of(
            ctx.facts[Facet.TARGET], fast_algorithms=plan.fast_algorithms
        )
        self._tasks = _kept_tasks(ctx.inputs["tasks"])
        self._batch = batch_size(plan.tuning.budget.trials, len(self._tasks), plan.tuning.batch)
        self._failures = Failures.of(ctx, self._conditions, "tune", plan.on_failure)
        texts = {task.name: _workload(ctx.inputs["tasks"], task) for task in self._tasks}
        modules = {
            task.name: described(tvm.ir.load_json(texts[task.name]), task.info)
            for task in self._tasks
        }
        self.maker = Maker(modules, self._failures)
        self._preparation = Preparation(
            texts, self.maker, plan.policy, self._conditions, journal, plan.tuning, self._batch
        )
        self._measurer = Local(
            self._conditions.target, self._conditions.hardware.cores, plan.tuning.measure,
            Turn(lambda text: ctx.emit(Warn(stage="tune", message=text))),
        )  # fmt: skip
        self._inspector = Inspector.of(ctx, self._failures)

    def run(self) -> str:
        """Tune, and write the artifact."""
        works = self._started({task.index: task.share for task in self._tasks})
        measured = shares(works, self._journal)
        works = self._started(measured)  # a rule may go by the share
        set_aside(works, measured, self._plan.judge)
        known = self._known(works)
        self._seeded(works)
        ended = self._searched(works)
        self._confirm(works)
        run_off(works, self._journal, self._measurer, self._serial)
        self._confirm(works)
        results = Results(works, self._journal, measured, self._failures)
        results.write(self._ctx.out, ended)
        if damaged := self._journal.store.damaged:
            text = f"{self._ctx.records}: skipped {damaged} damaged records"
            self._ctx.emit(Warn(stage="tune", message=text))
        return results.summary(ended) + known + self._unsteady(works)

    def _known(self, works: Sequence[Work]) -> str:
        """Tell, and return for the summary, how much earlier runs have measured of these tasks."""
        session = self._journal.session.name
        counts = [
            sum(row.record.session != session for row in self._journal.rows(work)) for work in works
        ]
        tasks = sum(map(bool, counts))
        if not tasks:
            return ""
        text = f"known: {sum(counts)} records of earlier runs for {tasks} of {len(works)} tasks"
        self._ctx.emit(Said(stage="tune", message=text))
        return f"; {text}"

    def _unsteady(self, works: Sequence[Work]) -> str:
        count = sum(row.record.unsteady for work in works if (row := self._journal.best(work)))
        return f"; the times of {count} are unsteady: the machine was busy" if count else ""

    def _started(self, by_task: Mapping[int, float]) -> list[Work]:
        """Return the works of all tasks, with their starts measured and the winners checked."""
        works = self._preparation.works(self._tasks, by_task)
        told = self._progress(works).told
        measure_starts(works, self._spending(works), self._measurer, self._journal, told)
        self._confirm(works)
        return works

    def _seeded(self, works: Sequence[Work]) -> None:
        """Measure what was fast elsewhere, so that the searches begin there."""
        spending, told = self._spending(works), self._progress(works).told
        found = seeds(works, spending, self._journal, self.maker, self._conditions)
        measure(found, spending, self._measurer, self._journal, told)

    def _searched(self, works: Sequence[Work]) -> str:
        progress = self._progress(works)
        arms = self._preparation.arms
        owners = {arm: (work, e.by) for work in works for arm, e in work.contest.entries.items()}
        suspects = self._suspects(owners)
        searcher = Searcher(
            engines((arm.engine for arm in arms), self._conditions), arms,
            lambda arm: self._journal.known(*owners[arm]),
            self._plan.judge.min_space if self._plan.judge else 1, suspects,
        )  # fmt: skip
        try:
            return Tuner(
                works, SCHEDULERS[self._plan.scheduler], self._spending(works), self._batch,
                searcher, self._measurer, self._journal, progress.told,
                lambda arm, error: self._put_aside(arm, *owners[arm], error),
            ).run()  # fmt: skip
        finally:
            searcher.close()
            for arm in suspects:
                if owners[arm][0].contest.entries[arm].form.batches:
                    self._failures.passed(self._searching(arm, *owners[arm]))
            if works:
                progress.emit()

    def _suspects(self, owners: Mapping[int, tuple[Work, Contender]]) -> set[int]:
        """Leave out searches that failed in earlier runs; return those to be tried only once."""
        found: set[int] = set()
        for arm, (work, by) in owners.items() if self._failures.hopeless else ():
            try:
                if work.standing.stopped is None and self._failures.suspect(
                    self._searching(arm, work, by)
                ):
                    found.add(arm)
            except Known as known:
                work.contest.entries[arm].out = str(known)
        return found

    def _put_aside(self, arm: int, work: Work, by: Contender, error: Failed) -> None:
        """Keep what it takes to have the search fail again; one that never worked is remembered."""
        never = not work.contest.entries[arm].form.batches
        self._failures.add(self._searching(arm, work, by), error, remembered=never)

    def _searching(self, arm: int, work: Work, by: Contender) -> Piece:
        problem = self._preparation.arms[arm].problem
        known = [(known.schedule, str(known.seconds)) for known in self._journal.known(work, by)]
        asked = {
            "task": problem.task.model_dump(mode="json"), "batch": problem.batch,
            "seed": problem.seed, "tuner": problem.tuner, "known": known,
        }  # fmt: skip
        workload = described(tvm.ir.load_json(work.text), problem.task.info)
        return Piece("searching", problem.task.name, workload, *by, problem=asked)

    def _confirm(self, works: Sequence[Work]) -> None:
        confirm(works, self._journal, self._inspector, self.maker)

    def _serial(self, work: Work) -> str | None:
        plans = self.maker.plans(work.standing.task.name, SERIAL.engine)
        return next((planned.schedule for planned in plans), None)

    def _progress(self, works: Sequence[Work]) -> Progress:
        standings = [work.standing for work in works]
        budget = self._plan.tuning.budget
        return Progress(standings, budget.trials, self._ctx.emit)

    def _spending(self, works: Sequence[Work]) -> Spending:
        standings = [work.standing for work in works]
        return Spending(self._plan.tuning.budget, standings, self._journal.session)


def _kept_tasks(folder: Path) -> list[Task]:
    return [task for task in read_tasks(folder) if task.dropped is None]


def _workload(folder: Path, task: Task) -> str:
    return (folder / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")
