"""Drops what has no size before the model runs."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from autopipe import config
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor


class Dynamic(Filter, frozen=True):
    """A dimension is symbolic: of an argument, or of what an op inside computes."""

    name: ClassVar[str] = "dynamic"
    remedy: ClassVar[str] = "tasks.heuristics.drop_dynamic: false"

    @classmethod
    def of(cls, tasks: config.Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls() if tasks.heuristics and tasks.heuristics.drop_dynamic else None

    def reason(self, task: Task, kept: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        for what, tensor in _tensors(task):
            if -1 in tensor.shape:
                return f"dimension {tensor.shape.index(-1)} of {what} is symbolic"
        return f"symbolic sizes as arguments: {task.sizes}" if task.sizes else None


def _tensors(task: Task) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name; an op may hide one that no argument shows."""
    for what, tensors in (("input", task.inputs), ("output", task.outputs)):
        for position, tensor in enumerate(tensors):
            yield f"{what} {position}", tensor
    for op in task.info.ops:
        for tensor in op.outputs:
            yield op.name, tensor
