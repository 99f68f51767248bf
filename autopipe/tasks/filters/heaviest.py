"""Keeps the heaviest of what is left."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Heaviest(Filter, frozen=True):
    """Enough other tasks have a larger share of the estimated time."""

    name: ClassVar[str] = "not among the heaviest"
    remedy: ClassVar[str] = "tasks.heuristics.heaviest: null"

    count: int
    """How many tasks are kept."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        count = tasks.heuristics and tasks.heuristics.heaviest
        return None if count is None else cls(count=count)

    def reason(self, task: Task, kept: Sequence[Task]) -> str | None:  # noqa: D102 - as in Filter
        ranked = sorted(kept, key=lambda other: (-other.share, other.index))
        place = [other.index for other in ranked].index(task.index)
        if place < self.count:
            return None
        return f"number {place + 1} of {len(kept)} by share, {self.count} are kept"
