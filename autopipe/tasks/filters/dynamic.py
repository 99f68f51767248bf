"""Drops tasks with dynamic shapes."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

_MOST_SIZES: Final = 16
"""Maximum number of elements of a shape tensor."""


class Dynamic(Filter, frozen=True):
    """A dimension of an argument, or of the output of an inner op, is symbolic."""

    name: ClassVar[str] = "dynamic"
    remedy: ClassVar[str] = "tasks.heuristics.drop_dynamic: false"

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls() if tasks.heuristics and tasks.heuristics.drop_dynamic else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: D102 - as in Filter
        if task.sizes and _computes_shapes(task):
            return "it only computes shapes"
        if task.likely is not None:
            same_tasks = [other.index for other in kept_tasks if other.workload == task.likely]
            if same_tasks:
                return f"at specialized sizes it is task {same_tasks[0]}"
            return "no task at specialized sizes is the same"
        for name, tensor in _list_tensors(task):
            if -1 in tensor.shape:
                return f"dimension {tensor.shape.index(-1)} of {name} is symbolic"
        return f"symbolic sizes as arguments: {task.sizes}" if task.sizes else None


def _computes_shapes(task: Task) -> bool:
    """Return whether all tensors of a task are small and integer, like shapes."""
    return all(
        "int" in tensor.dtype and -1 not in tensor.shape and math.prod(tensor.shape) <= _MOST_SIZES
        for tensor in (*task.inputs, *task.outputs)
    )


def _list_tensors(task: Task) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name, including outputs of inner ops."""
    for role, tensors in (("input", task.inputs), ("output", task.outputs)):
        for position, tensor in enumerate(tensors):
            yield f"{role} {position}", tensor
    for op in task.info.ops:
        for tensor in op.outputs:
            yield op.name, tensor
