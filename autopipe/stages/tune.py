"""Stage `tune`: searches for a fast schedule of each kept task, and keeps the best."""

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import ClassVar, Literal, Self

from autopipe.config.pipeline import Pipeline
from autopipe.config.schedules import Rule
from autopipe.config.tasks import Judge
from autopipe.config.tuning import Reach, Tuning
from autopipe.environment.facet import Facet
from autopipe.errors import TargetError
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind


class TuneStage(Stage, frozen=True):
    """Measures candidates until the budget is spent; an interrupted run is resumed."""

    name: ClassVar[str] = "tune"
    version: ClassVar[int] = 20
    produces: ClassVar[Kind] = Kind.RECORDS
    seconds: ClassVar[float | None] = None
    needs: ClassVar[Mapping[str, Need]] = {
        "tasks": Need(Kind.TASKS),
        "lower": Need(Kind.LOWERED, optional=True),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset(
        {Facet.TVM, Facet.TARGET, Facet.DEVICE, Facet.LIBRARIES, Facet.EXTENSIONS, Facet.TEMPLATES}
    )

    tuning: Tuning
    """Section `tuning` of the pipeline file."""
    rules: tuple[Rule, ...]
    """The schedule policy: which engines propose schedules for which task."""
    fallback: tuple[str, ...]
    """The engines that schedule a task without a record; timed first, as the baseline of records.
    """
    scheduler: Literal["gradient", "round_robin"]
    """The policy that divides the trials among the tasks."""
    fast_algorithms: bool
    """Whether implementations may round differently."""
    on_task_failure: Literal["fallback", "fail"]
    """Whether a candidate that crashes, hangs or takes all memory is skipped or ends the run."""
    judge: Judge | None
    """Which tasks are worth a search; null for all."""
    linker: str | None = None
    """The linker for another machine, and below the path of its C library; they change no time."""
    sysroot: str | None = None
    reach: Reach = Reach()
    """The addresses of the measuring machines, if they are remote."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Create the stage, or return None for `tuning: null`."""
        if pipeline.tuning is None:
            return None
        return cls(
            tuning=pipeline.tuning,
            rules=pipeline.schedules.rules,
            fallback=pipeline.schedules.fallback,
            scheduler=pipeline.tasks.scheduler,
            fast_algorithms=pipeline.numerics.fast_algorithms,
            on_task_failure=pipeline.tasks.on_task_failure,
            judge=pipeline.tasks.judge,
            linker=pipeline.target.linker,
            sysroot=pipeline.target.sysroot,
            reach=Reach.of(pipeline.tuning.measure, base),
        )

    def keyed(self) -> frozenset[Facet]:
        """Exclude this machine where another one measures: its label or key is the device."""
        is_local = self.tuning.measure.runner == "local"
        return self.reads if is_local else self.reads - {Facet.DEVICE}

    def unkeyed(self) -> frozenset[str]:
        """Exclude the addresses of machines and the paths of the linker, which change no time."""
        return frozenset({"reach", "linker", "sysroot"})

    def run(self, ctx: Context) -> str:
        """Write `records.jsonl` and `tuning.json`.

        Raises TargetError where nothing can be timed, SetupError if an extension is broken, and
        StageError for a failure that is to end the run.
        """
        start = monotonic()  # the budget includes the seconds of these imports

        from autopipe import extensions
        from autopipe.compiler.target import machine
        from autopipe.environment.toolchain import Linker
        from autopipe.schedules.policy import Policy
        from autopipe.tuning.run import tune_tasks
        from autopipe.tuning.setup import TuningPlan

        extensions.check_extensions()
        try:
            machine.check(ctx.facts[Facet.TARGET])
        except TargetError as error:
            if self.tuning.measure.runner == "local":
                raise
            message = f"{error}; what is tuned cannot be verified or timed here: switch that off"
            ctx.emit(Warn(stage="tune", message=message))
        policy = Policy(self.rules, self.fallback)
        plan = TuningPlan(
            self.tuning, policy, self.scheduler, self.fast_algorithms, self.judge,
            self.on_task_failure, self.reach, Linker.of(self.linker, self.sysroot), start,
        )  # fmt: skip
        return tune_tasks(plan, ctx)
