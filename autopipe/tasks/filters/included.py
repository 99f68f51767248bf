"""Drops tasks that do not match `tasks.include`."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.match import Match
from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.matching import is_match
from autopipe.tasks.task import Task


class Included(Filter, frozen=True):
    """None of the patterns matches."""

    name: ClassVar[str] = "not included"
    remedy: ClassVar[str] = "another pattern in tasks.include"

    patterns: tuple[Match, ...]
    """Patterns of which one has to match."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return None if Match() in tasks.include else cls(patterns=tasks.include)

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        if any(is_match(pattern, task, task.share) for pattern in self.patterns):
            return None
        return "tasks.include does not match it"
