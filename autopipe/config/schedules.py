"""Section `schedules`: which engine may schedule which task."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from autopipe.config.frozen import Consistent, Contradiction, Distinct
from autopipe.config.match import Match
from autopipe.libraries import LIBRARIES

ENGINES: Final = (
    "ansor",
    "autotvm",
)
"""The engines of autopipe; `autopipe.schedules.engines.registry` creates them."""

IMPLEMENTATIONS: Final = ("direct", "winograd2", "winograd4", "winograd6")
"""The implementations of autopipe: the lowered function itself, and others in order of trial."""


def _list_registered(group: str) -> list[str]:
    """List the names that installed packages register in a group of entry points."""
    from autopipe import extensions

    return [entry.name for entry in extensions.installed() if entry.group == group]


def _check_engine(name: str) -> str:
    if name not in ENGINES and name not in (registered := _list_registered("autopipe.engines")):
        raise _build_unknown_error(*ENGINES, *registered)
    return name


def _check_implementation(glob: str) -> str:
    if any(fnmatchcase(name, glob) for name in IMPLEMENTATIONS):
        return glob
    libraries = [library for library in LIBRARIES if fnmatchcase(library.name, glob)]
    if any(library.version() for library in libraries):
        return glob
    registered = _list_registered("autopipe.implementations")
    if any(fnmatchcase(name, glob) for name in registered):
        return glob
    if libraries:
        raise ValueError(libraries[0].missing())
    library_names = [library.name for library in LIBRARIES]
    raise _build_unknown_error(*IMPLEMENTATIONS, *library_names, *registered)


def _build_unknown_error(*known_names: str) -> PydanticKnownError:
    return PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, known_names))})


EngineName = Annotated[str, AfterValidator(_check_engine), Field(examples=list(ENGINES))]
"""One of `ENGINES`, or the name of an installed entry point of the group `autopipe.engines`."""

ImplementationGlob = Annotated[
    str,
    AfterValidator(_check_implementation),
    Field(
        examples=[*IMPLEMENTATIONS, *(one.name for one in LIBRARIES if one.distribution)],
    ),
]
"""A glob that one of `IMPLEMENTATIONS` or an installed library fits, or an installed entry point of
`autopipe.implementations`."""

FallbackName = Literal["static", "default"]
Chain = Annotated[Distinct[FallbackName], Field(min_length=1)]


class Rule(Consistent, frozen=True):
    """One rule of the policy."""

    match: Match = Field(default_factory=Match)
    """The tasks to which the rule applies."""
    engines: Distinct[EngineName] = ("autotvm", "ansor")
    """Engines that propose schedules: `autotvm` searches the knobs of templates, `ansor` without
    templates, an installed package may add others. Empty leaves the task to the fallback."""
    implementations: Annotated[Distinct[ImplementationGlob], Field(min_length=1)] | None = None
    """Globs over the names of the allowed implementations, such as `direct` or a library,
    `openblas`. Null is all of them, except for `ansor`, which then searches only `direct`."""
    select: Literal["best", "first"] = "best"
    """Choice of the winner: `best` is the fastest measured one of all engines; `first` is the
    fastest of the first engine in the list that has a schedule, and no other engine is tuned."""
    shares: dict[EngineName, Annotated[float, Field(gt=0, le=1)]] = {}
    """Share of a task's trials for an engine, while it has candidates. The rest goes to the other
    engines by their success."""
    fallback: Chain | None = None
    """The fallback of these tasks; null is `schedules.fallback`."""

    def _contradictions(self) -> Iterator[Contradiction]:
        for engine, share in self.shares.items():
            if engine not in self.engines:
                yield ("shares", engine), share, f"cannot be spent: `engines` lacks {engine}"
        if self.shares and self.select == "first":
            yield ("shares",), self.shares, "divides nothing: `select: first` tunes one engine"
        if (total := sum(self.shares.values())) > 1 + 1e-9:
            yield ("shares",), self.shares, f"should sum to 1 at most, not to {total:g}"


class Schedules(Consistent, frozen=True):
    """The schedule policy: the first rule that matches a task decides."""

    rules: tuple[Rule, ...] = (Rule(),)
    """Rules in order; a task without a matching rule goes to the fallback."""
    fallback: Chain = ("static", "default")
    """Schedulers of a task without a usable record; the first applicable one is used. `static` is a
    template with knobs from hardware parameters; `default` is parallel outer and vectorized inner
    loops. Neither is searched; tuning times them first."""

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield the first rule that an earlier rule makes unreachable."""
        for position, rule in enumerate(self.rules):
            for earlier, earlier_rule in enumerate(self.rules[:position]):
                if earlier_rule.match in (Match(), rule.match):
                    scope = "every task" if earlier_rule.match == Match() else "the same tasks"
                    why = f"never applies: rule {earlier} before it matches {scope}"
                    yield ("rules", position), rule, why
                    return
