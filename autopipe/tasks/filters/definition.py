"""The base class of filters: rules that drop tasks, with their parameters."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from autopipe.config.frozen import Frozen
from autopipe.config.tasks import Tasks
from autopipe.tasks.task import Task


class Filter(Frozen, frozen=True):
    """One rule. It reads only tasks, so that it needs no TVM and works before tuning."""

    name: ClassVar[str]
    """The word that its reasons start with."""
    remedy: ClassVar[str]
    """The setting of the pipeline file that keeps the tasks that it drops."""

    @classmethod
    @abstractmethod
    def of(cls, tasks: Tasks) -> Self | None:
        """Return the filter as the section configures it, or None if it is switched off."""

    @abstractmethod
    def reason(self, task: Task, kept_tasks: Sequence[Task]) -> str | None:
        """Return why a task is dropped, or None to keep it.

        `kept_tasks` are all tasks that earlier filters kept, including this one.
        """
