"""Drops tasks without computation: the RFC's functions without any call."""

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.task import Task


class Idle(Filter, frozen=True):
    """No element is computed: there is none, or each is a constant or copied in place."""

    name: ClassVar[str] = "idle"
    remedy: ClassVar[str] = "tasks.heuristics.drop_idle: false"

    @classmethod
    def of(cls, tasks: Tasks) -> Self | None:  # noqa: D102 - as in Filter
        return cls() if tasks.heuristics and tasks.heuristics.drop_idle else None

    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:  # noqa: ARG002, D102
        if task.outputs and not any(math.prod(tensor.shape) for tensor in task.outputs):
            return "its outputs have no element"
        return "it only copies or stores constants" if task.idle else None
