"""Task filters: why a task is not tuned. The RFC's S2, and its `include_simple_task`."""

from collections.abc import Callable, Sequence

from autopipe.config import Tasks
from autopipe.task import Task

Filter = Callable[[Task, Tasks], str | None]
"""Returns why a task is dropped, or None to keep it."""


def simple(task: Task, config: Tasks) -> str | None:
    """Drop tasks without a reduction: elementwise, broadcast, injective and layout functions."""
    if config.include_simple_task or task.reductions:
        return None
    return "simple: no reduction (include_simple_task)"


def dynamic(task: Task, _: Tasks) -> str | None:
    """Drop tasks with a symbolic dimension: their search would abort."""
    shapes = [tensor.shape for tensor in (*task.inputs, *task.outputs)]
    return "dynamic: a dimension is symbolic" if any(-1 in shape for shape in shapes) else None


def opaque(task: Task, _: Tasks) -> str | None:
    """Drop tasks whose TIR no schedule rule can see into, such as sort or extern calls."""
    if task.info.kind == "opaque" and not task.reductions:
        return "opaque: no schedulable block"
    return None


def min_flops(task: Task, config: Tasks) -> str | None:
    """Drop tasks with too little work to matter."""
    least = config.heuristics.min_flops
    if config.include_simple_task and not task.reductions:
        return None  # simple tasks mostly move data; asked for, they are not dropped for that
    return f"small: {task.flops:.3g} FLOPs < {least:.3g}" if task.flops < least else None


FILTERS: tuple[Filter, ...] = (opaque, simple, dynamic, min_flops)
"""Applied in this order; the first reason is the one that is told."""


def apply_filters(tasks: Sequence[Task], config: Tasks) -> list[Task]:
    """Return the same tasks, each dropped one with its reason."""
    return [
        task.model_copy(
            update={"dropped": next(filter(None, (f(task, config) for f in FILTERS)), None)}
        )
        for task in tasks
    ]
