"""Drops tasks that schedules cannot change, because TVM cannot analyze their loops."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Final, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task

_OPS: Final = (
    "shape_of", "shape_to_tensor", "scatter*", "cumsum", "cumprod", "sort", "argsort", "topk",
    "unique", "nonzero", "*non_max_suppression", "vision.get_valid_counts", "bucketize",
)  # fmt: skip
"""Ops with handwritten TIR. Their loops differ by target, and some look like ordinary ones."""


class Opaque(Filter, frozen=True):
    """An op with handwritten TIR, or a block that TVM cannot analyze."""

    name: ClassVar[str] = "opaque"
    remedy: ClassVar[str] = "tasks.heuristics.drop_opaque: false"

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls() if tasks.heuristics and tasks.heuristics.drop_opaque else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        opaque_ops = [
            op for op in task.info.names if any(fnmatchcase(op, pattern) for pattern in _OPS)
        ]
        if opaque_ops:
            return f"no schedule can change {opaque_ops[0]}"
        return "no schedule can see into its loops" if task.opaque else None
