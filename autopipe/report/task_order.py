"""The sort order of the table of tasks."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autopipe.tasks.task import Task  # `--help` lists the columns without importing tasks


class Order(StrEnum):
    """A column of the table: ascending for the index, descending for costs."""

    INDEX = "index"
    SHARE = "share"
    FLOPS = "flops"
    BYTES = "bytes"

    def sorted(self, tasks: "Iterable[Task]") -> "list[Task]":
        """Sort tasks in this order; the sort is stable."""
        return sorted(tasks, key=lambda task: getattr(task, self), reverse=self is not Order.INDEX)
