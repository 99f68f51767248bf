"""From a task to the work of tuning it: its rule, its contenders, how far it has come."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product, takewhile

import tvm

from autopipe.compiler.op_info import described
from autopipe.config import Tuning
from autopipe.measure.measurement import Candidate
from autopipe.records.store import Tally
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.engines.fallback import UNSCHEDULED, Fallback, falls
from autopipe.schedules.policy import Contender, Policy, allows
from autopipe.schedules.replay import replay
from autopipe.tasks.task import Task
from autopipe.tuning.contest import Contest, Entry, Form
from autopipe.tuning.journal import Journal, contender
from autopipe.tuning.scheduler import Standing
from autopipe.tuning.searcher import Arm
from autopipe.tuning.task_state import Work


@dataclass(frozen=True, slots=True)
class Preparation:
    """What the works of all tasks are made with."""

    texts: Mapping[str, str]
    """The workload of each task as JSON, by its name."""
    maker: Maker
    policy: Policy
    conditions: Conditions
    journal: Journal
    tuning: Tuning
    batch: int
    """Trials of a task at a time."""
    arms: list[Arm] = field(default_factory=list)
    """The searches that may be begun; the contenders name them by their index."""

    forms: dict[str, Form] = field(default_factory=dict)
    """How the engines do over all tasks."""

    starts: dict[tuple[str, int | None], tuple[Fallback, ...]] = field(default_factory=dict)
    """The schedules that need no search, by workload and rule: they take a while to make."""

    def works(self, tasks: list[Task], shares: Mapping[int, float]) -> list[Work]:
        """Return the works of tasks with these shares of the model's time."""
        self.arms.clear()
        tallies = self.journal.store.trials(self.journal.session.name)
        return [
            self._work(task, shares[task.index], tallies.get(task.workload, Tally(0, 0)))
            for task in tasks
        ]

    def _work(self, task: Task, share: float, tally: Tally) -> Work:
        text = self.texts[task.name]
        module = described(tvm.ir.load_json(text), task.info)
        position, rule = self.policy.rule(task, share)
        contest = Contest(rule, position, {}, self.forms)
        every = self.maker.implementations(task.name)
        for engine, (name, body) in product(rule.engines, every.items()):
            if allows(rule, engine, name):
                contest.entries[len(self.arms)] = Entry(Contender(engine, name))
                problem = Problem(
                    task, body, self.conditions, (), self.batch, self.tuning.seed,
                    self.tuning.tuner,
                )  # fmt: skip
                self.arms.append(Arm(engine, problem))

        def candidate(implementation: str, schedule: str) -> Candidate:
            return partial(replay, module, implementation, schedule, self.conditions)

        key = (task.workload, position)
        if key not in self.starts:
            plans = partial(self.maker.plans, task.name)
            self.starts[key] = _starts(falls(self.policy.chain(rule), plans, partial(allows, rule)))
        standing = Standing(task, tally.trials, tally.failed)
        work = Work(standing, text, candidate, self.starts[key], contest)
        self._recall(work)
        return work

    def _recall(self, work: Work) -> None:
        """Take over what was measured before, in this session or another."""
        entries = {entry.by: entry for entry in work.contest.entries.values()}
        rows = self.journal.rows(work)
        own = {row.id for row in rows if row.record.session == self.journal.session.name}
        work.standing.recall((row.record.median, row.id in own) for row in rows)
        for row in rows:
            by, seconds = contender(row.record), row.record.median
            work.contest.note(by.implementation, seconds)
            if by in entries:
                entries[by].best = min(entries[by].best, seconds)
                if row.id in own:
                    entries[by].trials += 1
                    entries[by].form.batches = 1
        best = self.journal.best(work)
        if best is not None:
            work.standing.best = best.record.median
        if work.standing.trials:
            work.standing.history.append(work.standing.best)


def _starts(found: Iterator[Fallback]) -> tuple[Fallback, ...]:
    """Return the schedules of the first fallback that has any."""
    first = next(found)
    if first.engine == UNSCHEDULED:
        return ()
    return (first, *takewhile(lambda each: each.engine == first.engine, found))
