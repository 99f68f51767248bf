"""The schedule policy: the rule that matches a task, and the candidates that it allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from autopipe.config.schedules import Rule
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.tasks.matching import is_match
from autopipe.tasks.task import Task

_ALONE: Final = {"ansor": (DIRECT,)}
"""The implementations that an engine schedules if the rule names none; other engines take all.
Sketch search gets only the direct loops: it tiles them by itself, and the many stages of a fast
algorithm would multiply what it has to measure."""


class Contender(NamedTuple):
    """An engine and the implementation of a task that it may schedule."""

    engine: str
    implementation: str


SERIAL: Final = Contender("serial", DIRECT)
"""The loops of `default` without threads."""

LOOPS: Final = (Contender("loops", DIRECT), Contender("parallel_loops", DIRECT))
"""The loops as lowered, without threads and with."""

PLAIN: Final = (SERIAL, *LOOPS)
"""The baselines: a selected schedule must not be slower than these."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The section `schedules` of the pipeline file."""

    rules: tuple[Rule, ...]
    fallback: tuple[str, ...]

    def rule(self, task: Task, share: float) -> tuple[int | None, Rule]:
        """Return the first rule that matches a task, with its position.

        If none matches, the position is None and the rule allows no engine. `share` is the task's
        share of the run time, from 0 to 1.
        """
        for position, rule in enumerate(self.rules):
            if is_match(rule.match, task, share):
                return position, rule
        return None, Rule(engines=())

    def idle(self, tasks: Sequence[tuple[Task, float]]) -> list[int]:
        """Return the positions of the rules that match no task; tasks come with their shares."""
        return [
            position
            for position, rule in enumerate(self.rules)
            if not any(is_match(rule.match, task, share) for task, share in tasks)
        ]

    def chain(self, rule: Rule) -> tuple[str, ...]:
        """Return the fallback engines for the tasks of a rule, in order."""
        return rule.fallback or self.fallback


def is_allowed(rule: Rule, engine: str, implementation: str) -> bool:
    """Tell whether a rule lets an engine (or a fallback) schedule an implementation."""
    globs = rule.implementations or _ALONE.get(engine, ("*",))
    return any(fnmatchcase(implementation, glob) for glob in globs)
