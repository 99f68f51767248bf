"""Drops simple tasks: the RFC's `include_simple_task: false`."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Simple(Filter, frozen=True):
    """The task is simple, as `Task.simple` defines it."""

    name: ClassVar[str] = "simple"
    remedy: ClassVar[str] = "tasks.include_simple_task: true"

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return None if tasks.include_simple_task else cls()

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        return "no reduction (include_simple_task)" if task.simple else None
