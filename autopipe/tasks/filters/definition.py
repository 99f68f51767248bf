"""What a filter is: a rule that drops tasks, with its parameters."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.frozen import Frozen
from autopipe.config.tasks import Tasks
from autopipe.tasks.task import Task


class Filter(Frozen, frozen=True):
    """One rule. It sees tasks only, so that it needs no TVM and can be told before tuning."""

    name: ClassVar[str]
    """The word that its reasons start with."""
    remedy: ClassVar[str]
    """What in the pipeline file keeps the tasks that it drops."""

    @classmethod
    @abstractmethod
    def of(cls, tasks: Tasks) -> Self | None:
        """Return the filter that the section asks for, or None if it is switched off."""

    @abstractmethod
    def reason(self, task: Task, kept: Sequence[Task]) -> str | None:
        """Return why a task is dropped, or None to keep it.

        `kept` are all tasks that the filters before this one kept, the task among them.
        """
