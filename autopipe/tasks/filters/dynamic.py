"""Drops what has no size before the model runs."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

_MOST_SIZES: Final = 16
"""Sizes in a shape, at most."""


class Dynamic(Filter, frozen=True):
    """A dimension is symbolic: of an argument, or of what an op inside computes."""

    name: ClassVar[str] = "dynamic"
    remedy: ClassVar[str] = "tasks.heuristics.drop_dynamic: false"

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls() if tasks.heuristics and tasks.heuristics.drop_dynamic else None

    def reason(self, task: Task, kept: Sequence[Task]) -> str | None:  # noqa: D102 - as in Filter
        if task.sizes and _computes_shapes(task):
            return "it only computes shapes"
        if task.likely is not None:
            same = [other.index for other in kept if other.workload == task.likely]
            if same:
                return f"open sizes; at likely ones it is task {same[0]}"
            return "open sizes; no task at likely ones is the same"
        for what, tensor in _list_tensors(task):
            if -1 in tensor.shape:
                return f"dimension {tensor.shape.index(-1)} of {what} is symbolic"
        return f"symbolic sizes as arguments: {task.sizes}" if task.sizes else None


def _computes_shapes(task: Task) -> bool:
    """Tell whether all that a task reads and writes are a few whole numbers, as a shape's are."""
    return all(
        "int" in tensor.dtype and -1 not in tensor.shape and math.prod(tensor.shape) <= _MOST_SIZES
        for tensor in (*task.inputs, *task.outputs)
    )


def _list_tensors(task: Task) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name; an op may hide one that no argument shows."""
    for what, tensors in (("input", task.inputs), ("output", task.outputs)):
        for position, tensor in enumerate(tensors):
            yield f"{what} {position}", tensor
    for op in task.info.ops:
        for tensor in op.outputs:
            yield op.name, tensor
