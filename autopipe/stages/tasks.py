"""Stage `tasks`: extract the tuning tasks and drop those not worth tuning, each for a reason."""

from pathlib import Path
from typing import ClassVar, Final, Self

from autopipe.config.pipeline import Pipeline
from autopipe.config.tasks import Tasks
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind

_LATER: Final = ("scheduler", "judge", "on_task_failure")
"""Settings that do not affect which tasks are kept."""


class TasksStage(Stage, frozen=True):
    """Extract and filter the tuning tasks."""

    name: ClassVar[str] = "tasks"
    version: ClassVar[int] = 11
    produces: ClassVar[Kind] = Kind.TASKS
    needs: ClassVar[dict[str, Need]] = {"lower": Need(Kind.LOWERED)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    filters: Tasks
    """Which tasks are kept."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Create the stage from the filters of the pipeline, without the settings of tuning.

        Without tuning the filters may drop all tasks.
        """
        changes = {name: getattr(Tasks(), name) for name in _LATER}
        if pipeline.tuning is None:
            changes["allow_empty"] = True
        return cls(filters=pipeline.tasks.model_copy(update=changes))

    def run(self, ctx: Context) -> str:
        """Write the table of tasks, and a module for each workload.

        Raises ConfigError if the filters leave nothing.
        """
        from autopipe.compiler import module_io
        from autopipe.compiler.step_counter import count_with
        from autopipe.compiler.tasks import extract_tasks
        from autopipe.schedules.conditions import Conditions
        from autopipe.schedules.roofline import estimate_shares
        from autopipe.tasks.filters import apply_filters, explain_no_tasks
        from autopipe.tasks.filters.unmatched import list_unmatched

        with count_with(Watch(self.name, ctx.emit).count):
            all_tasks, workloads = extract_tasks(module_io.load_lowered(ctx.inputs["lower"]))
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=True)
        tasks = apply_filters(estimate_shares(all_tasks, conditions.hardware), self.filters)
        warnings = list(list_unmatched(tasks, self.filters))
        kept_count = sum(task.dropped is None for task in tasks)
        if not kept_count and not self.filters.allow_empty:
            raise ConfigError("; ".join([explain_no_tasks(tasks), *warnings]))
        for text in warnings:
            ctx.emit(Warn(stage="tasks", message=text))
        module_io.save_json(
            [task.model_dump(mode="json") for task in tasks], ctx.out / "tasks.json"
        )
        (ctx.out / "workloads").mkdir()
        for identity, module in workloads.items():
            module_io.save_module(module, ctx.out / "workloads" / f"{identity}.json")
        return f"{len(tasks)} tasks, {kept_count} kept"
