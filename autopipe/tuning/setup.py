"""The resources of the steps of tuning, from the artifacts and facts of the stage."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import tvm

from autopipe.backends import find_backend
from autopipe.compiler import module_io
from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.config.tasks import Judge
from autopipe.config.tuning import Reach, Tuning
from autopipe.environment.facet import Facet
from autopipe.environment.toolchain import Linker
from autopipe.measure.turn import Turn
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Emit, Warn
from autopipe.pipeline.stage import Context
from autopipe.safety.failures import Failures, OnFailure
from autopipe.safety.inspection import Inspector
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.policy import Policy
from autopipe.tasks.task import Task, read_tasks
from autopipe.tasks.weights import count_weight_bytes
from autopipe.tuning.check_schedules import Checks
from autopipe.tuning.clock import estimate_touched_bytes, name_clock
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.journal import open_journal
from autopipe.tuning.progress import ProgressReporter
from autopipe.tuning.runners import open_runner
from autopipe.tuning.runners.runner import Runner, Wanted
from autopipe.tuning.sized_models import can_run
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

_CHECK_PART_OF_BUDGET: Final = 1 / 5
"""Part of a budget of time that the check of a schedule may take."""

_FEWEST: Final = 100
"""Trials of a budget: a smaller one asks for a quick answer, and nothing is timed in the model."""


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
    reach: Reach = field(default_factory=Reach)
    """Where the machines are that measure, if that is not this one."""
    linker: Linker | None = None
    """Links kernels for another kind of machine."""
    begun: float = field(default_factory=monotonic)
    """From when on the budget of time counts, by the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTasks:
    """The tasks of a model, and their workloads."""

    every: Sequence[Task]
    """All tasks, those that are dropped among them."""
    texts: Mapping[str, str]
    """The workload of each tuned task as JSON, by its name."""
    modules: Mapping[str, tvm.IRModule]
    """The same as modules, annotated with their operators."""
    folder: Path
    """The artifact of stage `tasks`."""
    lowered: Path | None = None
    """The lowered model in which finalists are timed; null where the trials decide."""

    @classmethod
    def read(cls, folder: Path, lowered_folder: Path | None) -> "ModelTasks":
        """Read the artifact of stage `tasks`."""
        every = read_tasks(folder)
        tuned_tasks = [task for task in every if task.dropped is None]
        texts = {task.name: _read_workload(folder, task) for task in tuned_tasks}
        modules = {
            task.name: annotate_workload(module_io.parse_json(texts[task.name]), task.info)
            for task in tuned_tasks
        }
        return cls(every=every, texts=texts, modules=modules, folder=folder, lowered=lowered_folder)

    @property
    def tuned(self) -> list[Task]:
        """The tuned tasks."""
        return [task for task in self.every if task.dropped is None]

    @property
    def dynamic(self) -> list[Task]:
        """Those with dynamic shapes, which are tuned at specialized sizes."""
        return [task for task in self.every if task.likely is not None]

    def read_workload(self, task: Task) -> str:
        """Return the workload of any task as JSON."""
        return _read_workload(self.folder, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringBench:
    """The runner, and the conditions it measures under."""

    runner: Runner
    turn: Turn
    """Keeps other runs from timing meanwhile."""
    conditions: Conditions
    touched: int
    """Bytes that the model touches between two calls of a kernel; 0 if trials are timed in a
    loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The open resources of tuning a model; each step takes the parts that it needs."""

    plan: TuningPlan
    tasks: ModelTasks
    checks: Checks
    bench: MeasuringBench
    deadline: Deadline
    emit: Emit

    def report_progress(self, states: Sequence[TaskState]) -> ProgressReporter:
        """Return a new reporter of the progress of a step."""
        return ProgressReporter(
            states,
            self.plan.tuning.budget.trials,
            self.emit,
            lambda: getattr(self.bench.runner, "workers", None),  # this machine has none
            self.deadline,
        )

    def open_trials(
        self, states: Sequence[TaskState], progress: ProgressReporter | None = None
    ) -> Trials:
        """Create the `Trials` that measure proposals of these tasks within the search budget."""
        return Trials(
            states,
            self.deadline.limit_search(self.plan.tuning.budget),
            self.checks.journal,
            self.bench.runner,
            self.bench.conditions,
            (progress or self.report_progress(states)).emit_at_intervals,
            self.bench.touched,
        )


@contextmanager
def open_setup(plan: TuningPlan, ctx: Context) -> Iterator[Setup]:
    """Open the resources of tuning; time counts and child processes live as long as it is open.

    Raises StoreError, and SetupError if nothing can be timed here.
    """
    tasks = ModelTasks.read(ctx.inputs["tasks"], _find_lowered(plan, ctx))
    touched_bytes = _count_touched(plan, ctx, tasks.every)
    target = ctx.facts[Facet.TARGET]
    conditions = Conditions.of(target, fast_algorithms=plan.fast_algorithms)
    conditions = conditions.within(count_weight_bytes(tasks.every))
    turn = Turn(lambda text: ctx.emit(Warn(stage="tune", message=text)))
    request = Wanted(
        conditions, ctx.facts, plan.tuning.measure, plan.reach, turn, touched_bytes, ctx.emit,
        plan.linker,
    )  # fmt: skip
    budget = plan.tuning.budget
    with (
        closing(open_runner(request)) as runner,
        open_journal(ctx, budget.trials, name_clock(touched_bytes), runner.device) as journal,
    ):
        journal.session.started = plan.begun
        in_model = tasks.lowered is not None
        deadline = Deadline.of(budget, journal.session.elapsed, in_model=in_model)
        turn.left = deadline.left
        failures = Failures.of(ctx, conditions, "tune", plan.on_failure)
        checks = Checks(
            journal=journal,
            failures=failures,
            maker=Maker(tasks.modules, failures),
            inspector=_open_inspector(plan, ctx, failures, runner, deadline),
        )
        bench = MeasuringBench(
            runner=runner, turn=turn, conditions=conditions, touched=touched_bytes
        )
        with journal.session.kept(), checks.maker:
            yield Setup(
                plan=plan,
                tasks=tasks,
                checks=checks,
                bench=bench,
                deadline=deadline,
                emit=ctx.emit,
            )


def _open_inspector(
    plan: TuningPlan, ctx: Context, failures: Failures, runner: Runner, deadline: Deadline
) -> Inspector:
    time = plan.tuning.budget.time
    most = math.inf if time is None else _CHECK_PART_OF_BUDGET * time
    watch = Watch("tune", ctx.emit)
    inspector = Inspector.of(
        ctx, failures, runner.checker, lambda: min(most, deadline.left()), watch
    )
    if plan.tuning.measure.runner == "rpc":  # what a device computes counts, even if it runs here
        inspector.checker = runner.checker or inspector.checker
    return inspector


def _count_touched(plan: TuningPlan, ctx: Context, every: Sequence[Task]) -> int:
    """Return the bytes that the model touches between two calls, 0 to time in a loop."""
    on_device = not find_backend(ctx.facts[Facet.TARGET]).runs_on_host
    measure = plan.tuning.measure
    loop = on_device or measure.clock == "loop" or measure.runner == "rpc"
    return 0 if loop else estimate_touched_bytes(every)


def _find_lowered(plan: TuningPlan, ctx: Context) -> Path | None:
    """Return the lowered model, if it runs on the processor of this machine."""
    on_device = not find_backend(ctx.facts[Facet.TARGET]).runs_on_host
    tuning = plan.tuning
    has_finalists = tuning.finalists > 0 and tuning.budget.trials >= _FEWEST
    elsewhere = tuning.measure.runner != "local"
    folder = ctx.inputs.get("lower") if has_finalists and not (on_device or elsewhere) else None
    if folder is None or not can_run(folder, read_tasks(ctx.inputs["tasks"])):
        return None
    return folder


def _read_workload(folder: Path, task: Task) -> str:
    return (folder / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")
