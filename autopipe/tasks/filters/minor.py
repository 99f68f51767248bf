"""Drops tasks with too little of the model's time to matter."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Minor(Filter, frozen=True):
    """A small share of the time, as the roofline estimates it."""

    name: ClassVar[str] = "minor"
    remedy: ClassVar[str] = "tasks.heuristics.min_share: 0"

    least: float
    """Minimum share of the estimated time of all tasks, 0 to 1."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls(least=tasks.heuristics.min_share) if tasks.heuristics else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        if task.share >= self.least:
            return None
        return f"{task.share:.3%} of the estimated time < {self.least:.3%}"
