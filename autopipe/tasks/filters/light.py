"""Drops tasks that move too little data to matter."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Light(Filter, frozen=True):
    """Few bytes of inputs and outputs."""

    name: ClassVar[str] = "light"
    remedy: ClassVar[str] = "tasks.heuristics.min_bytes: 0"

    least: int
    """Minimum bytes of all arguments of a call."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls(least=tasks.heuristics.min_bytes) if tasks.heuristics else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        return f"{task.bytes} bytes < {self.least}" if task.bytes < self.least else None
