"""What every step of tuning works with, made from the artifacts and facts of the stage."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, Literal, Self

import tvm

from autopipe.backends import of_target
from autopipe.compiler import module_io
from autopipe.compiler.labels.op_info import described
from autopipe.config import Tuning
from autopipe.config.tasks import Judge
from autopipe.config.tuning import Reach
from autopipe.environment.facet import Facet
from autopipe.environment.toolchain import Linker
from autopipe.measure.turn import Turn
from autopipe.pipeline.events import Event, Warn
from autopipe.pipeline.stage import Context
from autopipe.safety.failures import Failures, OnFailure
from autopipe.safety.inspection import Inspector
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.policy import Policy
from autopipe.tasks.task import Task, read_tasks
from autopipe.tasks.weights import weights_in_all
from autopipe.tuning.clock import clock_of, touched_by
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.journal import Journal, open_journal
from autopipe.tuning.loop import batch_size
from autopipe.tuning.progress import ProgressReporter
from autopipe.tuning.runners import open_runner
from autopipe.tuning.runners.runner import Runner, Wanted
from autopipe.tuning.sized_models import can_run
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

_FINALS: Final = 1 / 4
"""Part of a budget of time that the finals inside the model may take."""

_LONGEST: Final = 60.0
"""Seconds that they may take where no budget of time is given."""

_CHECK: Final = 1 / 5
"""Part of a budget of time that the check of a schedule may take."""

_SETTLING: Final = 2.0
"""How many times as long as the first round what comes after the search takes: it times three
schedules instead of one, and checks two."""

_MOST_SETTLING: Final = 0.4
"""Part of a budget of time that is kept back for what comes after the search, at most."""

_CLOSING: Final = 1 / 20
"""Part of it in which nothing more is begun: what goes on is ended, and all is written."""

_START: Final = 1 / 4
"""Part of it that is kept back before the first round has told how long a round takes."""

_FEWEST: Final = 100
"""Trials of a budget: who gives fewer asks for a quick answer, and gets no finals."""


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
    """Who links kernels for another kind of machine."""
    begun: float = field(default_factory=monotonic)
    """From when on the budget of time counts, by the monotonic clock."""


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
    measurer: Runner
    turn: Turn
    """Keeps other runs from timing meanwhile."""
    touched: int
    """Bytes that the model touches between two calls of a kernel; 0 if trials are timed in a
    loop."""
    emit: Callable[[Event], None]
    every: Sequence[Task] = ()
    """All tasks, those that are dropped among them."""
    workload: Callable[[Task], str] = str
    """Returns the workload of any task as JSON."""
    lowered: Path | None = None
    """The lowered model in which finalists are timed; null where the trials decide."""
    settling: float = 0.0
    """Seconds of the budget that are kept back for what comes after the search."""
    deadline: Deadline = field(default_factory=Deadline)
    """The end of the budget of time. What is kept of it changes from step to step."""

    @property
    def finals(self) -> float:
        """Seconds that the finals inside the model may take, 0 where the trials decide."""
        time = self.plan.tuning.budget.time
        seconds = _LONGEST if time is None else _FINALS * time
        return seconds if self.lowered is not None else 0.0

    @property
    def batch(self) -> int:
        """Trials of a task at a time, on a farm too: more tasks keep that busy, not larger batches.

        A larger batch would leave a task fewer rounds in which it can learn.
        """
        tuning = self.plan.tuning
        return batch_size(tuning.budget.trials, len(self.tasks), tuning.batch)

    def keeping_back(self, first_round: float | None = None) -> Self:
        """Return tools that end the search in time, after a first round of so many seconds."""
        time = self.plan.tuning.budget.time
        if time is None:
            return self
        after = _START * time
        if first_round is not None:
            after = min(_SETTLING * first_round, _MOST_SETTLING * time)
        self.deadline.kept = self.finals + after
        return replace(self, settling=after)

    def progress(self, states: Sequence[TaskState]) -> ProgressReporter:
        """Return who tells how a step goes."""
        return ProgressReporter(
            states,
            self.plan.tuning.budget.trials,
            self.emit,
            lambda: getattr(self.measurer, "workers", None),  # who measures here has none
            self.deadline.left,
        )

    def trials(
        self, states: Sequence[TaskState], progress: ProgressReporter | None = None
    ) -> Trials:
        """Return who measures what tasks propose; a step of its own has a progress of its own."""
        told = (progress or self.progress(states)).told
        budget = self.plan.tuning.budget
        if budget.time is not None:
            kept = self.finals + self.settling + _CLOSING * budget.time
            budget = budget.model_copy(update={"time": budget.time - kept})
        return Trials(states, budget, self.journal, self.measurer, self.conditions, told,
                      self.touched)  # fmt: skip


@contextmanager
def open_tools(plan: TuningPlan, ctx: Context) -> Iterator[Tools]:
    """Make what tuning works with; time is counted, and children are kept, as long as it is open.

    Raises StoreError, and SetupError if nothing can be timed here.
    """
    every = read_tasks(ctx.inputs["tasks"])
    touched = _touched(plan, ctx, every)
    target = ctx.facts[Facet.TARGET]
    conditions = Conditions.of(target, fast_algorithms=plan.fast_algorithms)
    conditions = conditions.within(weights_in_all(every))
    turn = Turn(lambda text: ctx.emit(Warn(stage="tune", message=text)))
    wanted = Wanted(
        conditions, ctx.facts, plan.tuning.measure, plan.reach, turn, touched, ctx.emit, plan.linker
    )
    with (
        closing(open_runner(wanted)) as runner,
        open_journal(ctx, plan.tuning.budget.trials, clock_of(touched), runner.device) as journal,
    ):
        journal.session.started = plan.begun
        tools = _tools(plan, ctx, journal, every, (wanted, runner))
        with journal.session.kept(), tools.maker:
            yield tools


def _touched(plan: TuningPlan, ctx: Context, every: Sequence[Task]) -> int:
    """Return the bytes that the model touches between two calls, 0 to time in a loop."""
    on_device = not of_target(ctx.facts[Facet.TARGET]).runs_on_host
    measure = plan.tuning.measure
    loop = on_device or measure.clock == "loop" or measure.runner == "rpc"
    return 0 if loop else touched_by(every)


def _tools(
    plan: TuningPlan,
    ctx: Context,
    journal: Journal,
    every: Sequence[Task],
    runs: tuple[Wanted, Runner],
) -> Tools:
    (wanted, runner), folder = runs, ctx.inputs["tasks"]
    conditions = wanted.conditions
    tasks = [task for task in every if task.dropped is None]
    open_tasks = [task for task in every if task.likely is not None]
    failures = Failures.of(ctx, conditions, "tune", plan.on_failure)
    texts = {task.name: _workload(folder, task) for task in tasks}
    modules = {
        task.name: described(module_io.from_json(texts[task.name]), task.info) for task in tasks
    }
    maker = Maker(modules, failures)
    time = plan.tuning.budget.time
    deadline = Deadline()
    if time is not None:
        deadline.end = monotonic() + (1 - _CLOSING) * time - journal.session.elapsed
    wanted.turn.left = deadline.left
    most = math.inf if time is None else _CHECK * time
    inspector = Inspector.of(ctx, failures, runner.checker, lambda: min(most, deadline.left()))
    if wanted.measure.runner == "rpc":  # what a device computes counts, even if it could run here
        inspector.checker = runner.checker or inspector.checker
    return Tools(
        plan, tasks, open_tasks, texts, modules, conditions, journal, failures, maker, inspector,
        runner, wanted.turn, wanted.touched, ctx.emit, every, partial(_workload, folder),
        _lowered(plan, ctx, every), deadline=deadline,
    ).keeping_back()  # fmt: skip


def _lowered(plan: TuningPlan, ctx: Context, every: Sequence[Task]) -> Path | None:
    """Return the lowered model, if it runs on the processor of this machine."""
    on_device = not of_target(ctx.facts[Facet.TARGET]).runs_on_host
    tuning = plan.tuning
    wanted = tuning.finalists > 0 and tuning.budget.trials >= _FEWEST
    elsewhere = tuning.measure.runner != "local"
    folder = ctx.inputs.get("lower") if wanted and not (on_device or elsewhere) else None
    return folder if folder is not None and can_run(folder, every) else None


def _workload(folder: Path, task: Task) -> str:
    return (folder / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")
