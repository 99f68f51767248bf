"""Section `schedules`: which engine may schedule which task."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from autopipe.config.contradiction import Contradiction, raise_contradictions
from autopipe.config.distinct import Distinct
from autopipe.config.engine_name import EngineName
from autopipe.config.frozen import Frozen
from autopipe.config.implementation_name import ImplementationGlob
from autopipe.config.match import Match

FallbackName = Literal["static", "default"]
Chain = Annotated[Distinct[FallbackName], Field(min_length=1)]


class Rule(Frozen, frozen=True):
    """One rule of the policy."""

    match: Match = Field(default_factory=Match)
    """Which tasks the rule is for."""
    engines: Distinct[EngineName] = ("autotvm", "ansor")
    """Engines that propose schedules: `autotvm` searches the knobs of templates, `ansor` without
    templates, an installed package may bring others. Empty leaves the task to the fallback."""
    implementations: Annotated[Distinct[ImplementationGlob], Field(min_length=1)] | None = None
    """Globs over the names of the implementations that may be used, such as `direct` or a library,
    `openblas`. Null is all of them, but for `ansor`, which then searches `direct` alone."""
    select: Literal["best", "first"] = "best"
    """How the winner is chosen: `best` is the fastest measured, of all engines; `first` is the
    fastest of the first engine in the list that has a schedule, and no other engine is tuned."""
    shares: dict[EngineName, Annotated[float, Field(gt=0, le=1)]] = {}
    """Part of a task's trials that goes to an engine, while it has any to propose. What is left
    goes to the other engines, by what they have brought."""
    fallback: Chain | None = None
    """The fallback of these tasks; null is `schedules.fallback`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        raise_contradictions("rule", self._contradictions())
        return self

    def _contradictions(self) -> Iterator[Contradiction]:
        for engine, share in self.shares.items():
            if engine not in self.engines:
                yield ("shares", engine), share, f"can not be spent: `engines` lacks {engine}"
        if self.shares and self.select == "first":
            yield ("shares",), self.shares, "divides nothing: `select: first` tunes one engine"
        if (total := sum(self.shares.values())) > 1 + 1e-9:
            yield ("shares",), self.shares, f"should sum to 1 at most, not to {total:g}"


class Schedules(Frozen, frozen=True):
    """The schedule policy: the first rule that matches a task decides."""

    rules: tuple[Rule, ...] = (Rule(),)
    """Rules in order; a task that none matches goes to the fallback."""
    fallback: Chain = ("static", "default")
    """What schedules a task without a usable record; the first that serves it does. `static` is a
    template, its knobs filled from hardware parameters; `default` is parallel outer and vectorized
    inner loops. Neither is searched; in tuning they are timed before anything else."""

    @model_validator(mode="after")
    def _check_reachable_rules(self) -> Self:
        raise_contradictions("schedules", self._list_unreachable())
        return self

    def _list_unreachable(self) -> Iterator[Contradiction]:
        """Yield the first rule behind one that takes all its tasks."""
        for position, rule in enumerate(self.rules):
            for earlier, other in enumerate(self.rules[:position]):
                if other.match in (Match(), rule.match):
                    what = "every task" if other.match == Match() else "the same tasks"
                    why = f"never applies: rule {earlier} before it matches {what}"
                    yield ("rules", position), rule, why
                    return
