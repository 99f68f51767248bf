"""Drops tasks that match `tasks.exclude`."""

from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.match import Match
from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.matching import is_match
from autopipe.tasks.task import Task


class Excluded(Filter, frozen=True):
    """One of the patterns matches."""

    name: ClassVar[str] = "excluded"
    remedy: ClassVar[str] = "fewer patterns in tasks.exclude"

    patterns: tuple[Match, ...]
    """Patterns of which none may match."""

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls(patterns=tasks.exclude) if tasks.exclude else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        for position, pattern in enumerate(self.patterns):
            if is_match(pattern, task, task.share):
                return f"tasks.exclude.{position}, {pattern}, matches it"
        return None
