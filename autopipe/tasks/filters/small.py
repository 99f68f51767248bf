"""Drops tasks with too little arithmetic to matter."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Small(Filter, frozen=True):
    """Few floating-point operations in a task that is not simple: those move data instead."""

    name: ClassVar[str] = "small"
    remedy: ClassVar[str] = "tasks.heuristics.min_flops: 0"

    least: float
    """Minimum floating-point operations of a call."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls(least=tasks.heuristics.min_flops) if tasks.heuristics else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        if task.simple or task.flops >= self.least:
            return None
        return f"{task.flops:g} FLOPs < {self.least:g}"
