"""The schedule policy: which rule a task falls under, and what that allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from autopipe.config.schedules import Rule
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.tasks.matching import matches
from autopipe.tasks.task import Task

_ALONE: Final = {"ansor": (DIRECT,)}
"""What an engine is for unless it is asked otherwise: sketches tile what they find by themselves,
and the stages of a fast algorithm only multiply what has to be measured."""


class Contender(NamedTuple):
    """Who may schedule a task: an engine, on an implementation."""

    engine: str
    implementation: str


SERIAL: Final = Contender("serial", DIRECT)
"""The loops without threads, which no winner may be slower than."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Section `schedules`."""

    rules: tuple[Rule, ...]
    fallback: tuple[str, ...]

    def rule(self, task: Task, share: float) -> tuple[int | None, Rule]:
        """Return the first rule that matches, with its position; without one, no engine may."""
        for position, rule in enumerate(self.rules):
            if matches(rule.match, task, share):
                return position, rule
        return None, Rule(engines=())

    def idle(self, tasks: Sequence[tuple[Task, float]]) -> list[int]:
        """Return the positions of the rules that match none of these tasks with their shares."""
        return [
            position
            for position, rule in enumerate(self.rules)
            if not any(matches(rule.match, task, share) for task, share in tasks)
        ]

    def chain(self, rule: Rule) -> tuple[str, ...]:
        """Return the fallback chain of the tasks of a rule."""
        return rule.fallback or self.fallback


def allows(rule: Rule, engine: str, implementation: str) -> bool:
    """Tell whether a rule lets an engine, or a fallback, schedule an implementation."""
    globs = rule.implementations or _ALONE.get(engine, ("*",))
    return any(fnmatchcase(implementation, glob) for glob in globs)
