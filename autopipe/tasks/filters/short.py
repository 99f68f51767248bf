"""Drops simple tasks of few ops: the RFC's functions with less than N injective ops."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Short(Filter, frozen=True):
    """The task is simple, and of few ops."""

    name: ClassVar[str] = "short"
    remedy: ClassVar[str] = "tasks.heuristics.min_injective_ops: null"

    least: int
    """Minimum number of ops of a simple task."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        least = tasks.heuristics and tasks.heuristics.min_injective_ops
        return None if least is None else cls(least=least)

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        count = len(task.info.ops)
        if task.simple and count < self.least:
            return f"{count} injective op{'s' * (count != 1)} < {self.least}"
        return None
