"""Keeps the tasks with the largest shares of the time."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Heaviest(Filter, frozen=True):
    """At least `count` other tasks have a larger share of the estimated time."""

    name: ClassVar[str] = "not among the heaviest"
    remedy: ClassVar[str] = "tasks.heuristics.heaviest: null"

    count: int
    """Number of tasks that are kept."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        count = tasks.heuristics and tasks.heuristics.heaviest
        return None if count is None else cls(count=count)

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: D102 - as in Filter
        ranked_tasks = sorted(kept_tasks, key=lambda other: (-other.share, other.index))
        place = [other.index for other in ranked_tasks].index(task.index)
        if place < self.count:
            return None
        return f"number {place + 1} of {len(kept_tasks)} by share, {self.count} are kept"
