"""What the table of tasks is ordered by."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autopipe.tasks.task import Task  # `--help` knows the columns, and needs no task


class Order(StrEnum):
    """A column of the table: index counts up, what costs most comes first."""

    INDEX = "index"
    SHARE = "share"
    FLOPS = "flops"
    BYTES = "bytes"

    def sorted(self, tasks: "Iterable[Task]") -> "list[Task]":
        """Return the tasks in this order; tasks that are equal in it keep theirs."""
        return sorted(tasks, key=lambda task: getattr(task, self), reverse=self is not Order.INDEX)
