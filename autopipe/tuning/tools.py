"""What every step of tuning works with, made from the artifacts and facts of the stage."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tvm

from autopipe.compiler import module_io
from autopipe.compiler.op_info import described
from autopipe.config import Tuning
from autopipe.config.tasks import Judge
from autopipe.environment.facet import Facet
from autopipe.measure.local import Local
from autopipe.measure.turn import Turn
from autopipe.pipeline.events import Event, Warn
from autopipe.pipeline.stage import Context
from autopipe.safety.failures import Failures, OnFailure
from autopipe.safety.inspection import Inspector
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.policy import Policy
from autopipe.tasks.task import Task, read_tasks
from autopipe.tuning.clock import clock_of, touched_by
from autopipe.tuning.journal import Journal, open_journal
from autopipe.tuning.loop import batch_size
from autopipe.tuning.progress import ProgressReporter
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """How to tune."""

    tuning: Tuning
    policy: Policy
    scheduler: Literal["gradient", "round_robin"]
    fast_algorithms: bool
    judge: Judge | None = None
    """Which tasks are worth a search; null for all."""
    on_failure: OnFailure = "fallback"


@dataclass(frozen=True, slots=True)
class Tools:
    """What every step of tuning works with."""

    plan: TuningPlan
    tasks: Sequence[Task]
    """Those that are tuned."""
    open_tasks: Sequence[Task]
    """Those with open sizes, which are tuned as what they are at likely ones."""
    texts: Mapping[str, str]
    """The workload of each task as JSON, by its name."""
    modules: Mapping[str, tvm.IRModule]
    """The same as modules, with what is known of their operators."""
    conditions: Conditions
    journal: Journal
    failures: Failures
    maker: Maker
    inspector: Inspector
    measurer: Local
    touched: int
    """Bytes that the model touches between two calls of a kernel; 0 if trials are timed in a
    loop."""
    emit: Callable[[Event], None]

    @property
    def batch(self) -> int:
        """Trials of a task at a time."""
        tuning = self.plan.tuning
        return batch_size(tuning.budget.trials, len(self.tasks), tuning.batch)

    def progress(self, states: Sequence[TaskState]) -> ProgressReporter:
        """Return who tells how a step goes."""
        return ProgressReporter(states, self.plan.tuning.budget.trials, self.emit)

    def trials(
        self, states: Sequence[TaskState], progress: ProgressReporter | None = None
    ) -> Trials:
        """Return who measures what tasks propose; a step of its own has a progress of its own."""
        told = (progress or self.progress(states)).told
        budget = self.plan.tuning.budget
        return Trials(states, budget, self.journal, self.measurer, self.conditions, told,
                      self.touched)  # fmt: skip


@contextmanager
def open_tools(plan: TuningPlan, ctx: Context) -> Iterator[Tools]:
    """Make what tuning works with; time is counted, and children are kept, as long as it is open.

    Raises StoreError, and SetupError if nothing can be timed here.
    """
    every = read_tasks(ctx.inputs["tasks"])
    touched = _touched(plan, ctx, every)
    with open_journal(ctx, plan.tuning.budget.trials, clock_of(touched)) as journal:
        tools = _tools(plan, ctx, journal, every, touched)
        with journal.session.kept(), tools.maker, closing(tools.measurer):
            yield tools


def _touched(plan: TuningPlan, ctx: Context, every: Sequence[Task]) -> int:
    """Return the bytes that the model touches between two calls, 0 to time in a loop."""
    on_gpu = ctx.facts[Facet.TARGET].get("kind") == "cuda"
    return 0 if on_gpu or plan.tuning.measure.clock == "loop" else touched_by(every)


def _tools(
    plan: TuningPlan, ctx: Context, journal: Journal, every: Sequence[Task], touched: int
) -> Tools:
    target, folder = ctx.facts[Facet.TARGET], ctx.inputs["tasks"]
    conditions = Conditions.of(target, fast_algorithms=plan.fast_algorithms)
    tasks = [task for task in every if task.dropped is None]
    open_tasks = [task for task in every if task.likely is not None]
    failures = Failures.of(ctx, conditions, "tune", plan.on_failure)
    texts = {task.name: _workload(folder, task) for task in tasks}
    modules = {
        task.name: described(module_io.from_json(texts[task.name]), task.info) for task in tasks
    }
    maker = Maker(modules, failures)
    measurer = Local(
        conditions.target, conditions.hardware.cores, plan.tuning.measure,
        Turn(lambda text: ctx.emit(Warn(stage="tune", message=text))), touched,
    )  # fmt: skip
    inspector = Inspector.of(ctx, failures)
    return Tools(
        plan, tasks, open_tasks, texts, modules, conditions, journal, failures, maker, inspector,
        measurer, touched, ctx.emit,
    )  # fmt: skip


def _workload(folder: Path, task: Task) -> str:
    return (folder / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")
