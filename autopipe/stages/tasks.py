"""Stage `tasks`: extract the tuning tasks and drop those not worth tuning, each for a reason."""

from pathlib import Path
from typing import ClassVar, Self

from autopipe import config
from autopipe.errors import ConfigError
from autopipe.filters import apply_filters
from autopipe.pipeline.stage import Context, Facet, Kind, Need, Stage


class Tasks(Stage, frozen=True):
    """Extract and filter the tuning tasks."""

    name: ClassVar[str] = "tasks"
    version: ClassVar[int] = 3
    produces: ClassVar[Kind] = Kind.TASKS
    needs: ClassVar[dict[str, Need]] = {"lower": Need(Kind.LOWERED)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    filters: config.Tasks
    """Which tasks are kept."""

    @classmethod
    def of(cls, pipeline: config.Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Take the filters of the pipeline; who schedules the kept tasks is not their business."""
        return cls(filters=pipeline.tasks.model_copy(update={"scheduler": "gradient"}))

    def run(self, ctx: Context) -> str:
        """Write the table of tasks, and a module for each workload."""
        from autopipe.compiler import module_io
        from autopipe.compiler.tasks import extract_tasks
        from autopipe.schedules.conditions import Conditions
        from autopipe.schedules.roofline import with_shares

        lowered = module_io.load_module(ctx.inputs["lower"] / "module.json")
        extracted, workloads = extract_tasks(lowered)
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=True)
        tasks = apply_filters(with_shares(extracted, conditions.hardware), self.filters)
        kept = sum(task.dropped is None for task in tasks)
        if not kept and not self.filters.allow_empty:
            raise ConfigError(_nothing_left(len(tasks)))
        module_io.save_json(
            [task.model_dump(mode="json") for task in tasks], ctx.out / "tasks.json"
        )
        (ctx.out / "workloads").mkdir()
        for identity, module in workloads.items():
            module_io.save_module(module, ctx.out / "workloads" / f"{identity}.json")
        return f"{len(tasks)} tasks, {kept} kept"


def _nothing_left(count: int) -> str:
    return (
        f"tasks: the filters drop all {count} tasks; lower tasks.heuristics.min_flops, "
        "set tasks.include_simple_task: true, or accept it with tasks.allow_empty: true"
    )
