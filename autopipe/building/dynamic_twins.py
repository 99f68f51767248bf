"""Find the tasks with dynamic shapes whose plain loops serve tasks of specialized sizes.

A kernel of the library for 320 by 320 is often that of dynamic shapes at these sizes. Then the
plain loops of the latter check both, and the former's need not be compiled.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tvm
from tvm import tirx

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    Counts,
    evaluate_extent,
    list_size_params,
    read_dynamic_sizes,
)
from autopipe.tasks.task import Task


class DynamicTwin(NamedTuple):
    """A task with dynamic shapes that is another one at some sizes."""

    task: str
    """Its name."""
    counts: tuple[tuple[int, int], ...]
    """Positions and values of its size arguments there."""


def find_dynamic_twins(tasks: Sequence[tuple[Task, tvm.IRModule]]) -> dict[str, DynamicTwin]:
    """Find the twin of each task that is one with dynamic shapes at its likely sizes, by name.

    `tasks` come with their workloads.
    """
    static_tasks = {task.workload: (task, module) for task, module in tasks}
    twins: dict[str, DynamicTwin] = {}
    for dynamic_task, module in tasks:
        sizes = read_dynamic_sizes(module["main"])
        if sizes is None:
            continue
        positions = list_size_params(module["main"])
        counts = tuple((at, sizes.likely[str(size.name)]) for at, size in positions)
        shapes = list(_list_shapes(module, sizes.likely))
        for workload in (dynamic_task.likely, *dynamic_task.also_likely):
            if workload not in static_tasks:
                continue
            static_task, static_module = static_tasks[workload]
            if list(_list_shapes(static_module, {})) == shapes:
                twins[static_task.name] = DynamicTwin(dynamic_task.name, counts)
    return twins


def _list_shapes(module: tvm.IRModule, counts: Counts) -> Iterator[list[int | None]]:
    """Yield the shapes of the tensors of `main` at some sizes."""
    for param in module["main"].params:
        if isinstance(param.ty, tirx.BufferType):
            yield [evaluate_extent(extent, counts) for extent in param.ty.shape]
