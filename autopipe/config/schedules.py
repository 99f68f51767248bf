"""Section `schedules`: which engine may schedule which task."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from autopipe.config.contradiction import Contradiction, refuse
from autopipe.config.distinct import Distinct
from autopipe.config.engine_name import EngineName
from autopipe.config.frozen import Frozen

FallbackName = Literal["static", "default"]


class Match(Frozen, frozen=True):
    """Which tasks a rule is for."""

    op: Annotated[str, StringConstraints(min_length=1)] = "*"
    """Glob over the names of the ops in the task, such as `conv2d*`; one op that fits is enough."""


class Rule(Frozen, frozen=True):
    """One rule of the policy."""

    match: Match = Match()
    """Which tasks the rule is for."""
    engines: Distinct[EngineName] = ("ansor",)
    """Engines that propose schedules; empty leaves the task to the fallback."""
    select: Literal["best"] = "best"
    """How the winner is chosen: `best` is the fastest measured."""


class Schedules(Frozen, frozen=True):
    """The schedule policy: the first rule that matches a task decides."""

    rules: tuple[Rule, ...] = (Rule(),)
    """Rules in order; a task that none matches goes to the fallback."""
    fallback: Annotated[Distinct[FallbackName], Field(min_length=1)] = ("static", "default")
    """What schedules a task without a usable record; the first that serves it does. `static` is a
    template, its knobs filled from hardware parameters; `default` is parallel outer and vectorized
    inner loops. Neither is searched; in tuning, each task's is timed before anything else."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        refuse("schedules", self._never_asked())
        return self

    def _never_asked(self) -> Iterator[Contradiction]:
        """Yield the rule behind one that matches every task."""
        for position, rule in enumerate(self.rules[1:], start=1):
            if self.rules[position - 1].match == Match():
                why = f"never applies: rule {position - 1} before it matches every task"
                yield ("rules", position), rule, why
                return
