"""Second opinions: what decides is asked of two workers of a farm, and of a third if they disagree.

A worker may be broken, busy with something else, or in somebody's hands. What one says alone
guides a search, and decides nothing. Two that agree are believed, and who contradicts both of them
is found out. Where two disagree and there is nobody else, nobody can tell who is right: then the
slower time counts, and the worse verdict, so that no wrong one wins.

Example: of a schedule A says 1 ms, B and C 9 ms. A is found out. Had only A and B been there, the
time would be 9 ms, and both would stay.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Generic, TypeVar

from autopipe.measure.measurement import Measurement

T = TypeVar("T")
"""What one says: times, or a verdict."""

NOISE: Final = 2.0
"""How many times as long one of two equal machines may take, by their least times. What lies
further apart is no noise: they are not equal, or one of them lies."""

_SLIPS: Final = 3
"""Claims of one worker that others refute, and it does too when it is asked beside them."""

HERE: Final = "this machine"
"""Whose opinion is asked for where workers can not decide, if it is of their kind."""

Times = Mapping[str, Sequence[Measurement]]
"""What each has said of the same candidates, by name."""


@dataclass(slots=True)
class Doubts:
    """Who is not believed any more, and what nobody can decide."""

    told: Callable[[str, str], None] = lambda _worker, _why: None
    """Called once with each worker, and why."""
    why: dict[str, str] = field(default_factory=dict)
    """Why workers are not believed, by their names."""
    undecided: set[str] = field(default_factory=set)
    """Tasks of whose times two workers say different things, with nobody else to ask."""
    _slips: Counter[str] = field(default_factory=Counter)

    def slip(self, worker: str, why: str) -> None:
        """Count a claim that was not true when others were asked at once, whatever its worker says.

        A machine may have been faster for a moment. Who claims such things again and again knows
        when it is asked beside others.
        """
        self._slips[worker] += 1
        if self._slips[worker] >= _SLIPS:
            self.add(worker, why)

    def add(self, worker: str, why: str) -> None:
        """Believe nothing more that a worker says."""
        if worker != HERE and worker not in self.why:
            self.why[worker] = why
            self.told(worker, why)


@dataclass(frozen=True, slots=True)
class Opinion:
    """What is believed of candidates."""

    measurements: list[Measurement]
    """One a candidate, all by one machine where those asked agree."""
    odd: frozenset[str] = frozenset()
    """Who has contradicted two that agree."""
    apart: tuple[str, ...] = ()
    """The two who disagree, where nobody else could be asked."""


def least(found: Measurement) -> float:
    """Return the seconds that noise has disturbed least; infinite for what failed."""
    return min(found.seconds, default=math.inf)


def near(one: float, other: float) -> bool:
    """Tell whether two least times may be those of equal machines."""
    return one == other or max(one, other) <= NOISE * min(one, other)


def agree(said: Times) -> bool:
    """Tell whether all say the same of every candidate."""
    return all(
        near(*map(least, pair)) for each in zip(*said.values(), strict=True)
        for pair in combinations(each, 2)
    )  # fmt: skip


def believed(said: Times) -> Opinion:
    """Return what follows from what one, two or three have said."""
    odd = frozenset(name for name in said if _contradicted(name, said))
    if len(odd) == len(said):  # one by each of three: nobody can tell who is right
        odd = frozenset()
    rest = {name: found for name, found in said.items() if name not in odd}
    base = min(rest.values(), key=lambda found: sum(each.error is not None for each in found))
    if len(rest) == 2 and not odd and not agree(rest):  # noqa: PLR2004 -- nobody else is there
        one, other = rest.values()
        slower = [max(pair, key=least) for pair in zip(one, other, strict=True)]
        return Opinion(slower, apart=tuple(rest))
    return Opinion([_most(base[place], place, rest) for place in range(len(base))], odd)


def _contradicted(name: str, said: Times) -> bool:
    """Tell whether two others agree on a time that is far from what somebody has said."""
    others = [found for who, found in said.items() if who != name]
    for one, other in combinations(others, 2):
        for own, first, second in zip(said[name], one, other, strict=True):
            times = [least(each) for each in (own, first, second)]
            if max(times) < math.inf and near(*times[1:]) and not _close(times):
                return True
    return False


def _close(times: Sequence[float]) -> bool:
    return any(near(times[0], other) for other in times[1:])


def _most(base: Measurement, place: int, said: Times) -> Measurement:
    """Return a failure where most have seen one: it is no time of one machine that counts."""
    failed = [found[place] for found in said.values() if found[place].error is not None]
    return failed[0] if 2 * len(failed) > len(said) else base


@dataclass(slots=True)
class Witnesses(Generic[T]):
    """Collects opinions of one kind."""

    names: Callable[[], list[str]]
    """Who may be asked, in an order that nobody can foretell."""
    ask: Callable[[Sequence[Sequence[str]]], Mapping[str, T]]
    """Asks one of each group of names, and returns who has said what; who fails says nothing."""
    here: Callable[[], T | None]
    """Asks this machine; null where it is of another kind."""
    same: Callable[[Mapping[str, T]], bool]
    """Tells whether all who have said something agree."""

    def said(self) -> dict[str, T]:
        """Return what two have said, or three if these disagree; fewer where nobody is left."""
        found: dict[str, T] = {}
        while (missing := (2 if self.same(found) else 3) - len(found)) > 0:
            others = [name for name in self.names() if name not in found]
            groups = [others[n::missing] for n in range(missing)]
            heard = self.ask([group for group in groups if group])
            if not heard:
                break
            found |= heard
        return self._with_here(found, 2 if self.same(found) else 3)

    def beside(self, name: str) -> dict[str, T]:
        """Return what somebody says now, and two others at that time; fewer where nobody is left.

        Nothing where it is gone.
        """
        names = self.names()
        others = [other for other in names if other != name]
        groups = [group for group in ([name], others[::2], others[1::2]) if group]
        return self._with_here(dict(self.ask(groups)), 3) if name in names else {}

    def _with_here(self, found: dict[str, T], wanted: int) -> dict[str, T]:
        own = self.here() if len(found) < wanted else None
        return found if own is None else found | {HERE: own}
