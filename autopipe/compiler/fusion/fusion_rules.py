"""Section `fusion`, applied to the groups that TVM's fusion chose."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autopipe.compiler.fusion.chains import Chain, Chains, Step
from autopipe.compiler.fusion.grouping import Grouping

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """Section `fusion`: globs over the names of ops, each the producer of the next."""

    join: Sequence[Sequence[str]] = ()
    apart: Sequence[Sequence[str]] = ()

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.join or self.apart)


def apply(rules: Rules, steps: Sequence[Step], grouping: Grouping, warn: Warn) -> None:
    """Cut and unite groups as the rules say; what they can not do is told to `warn`.

    Rules that keep apart come first, then the others in order: an op is joined once.
    """
    applied = _Applied(Chains(steps), steps, grouping, warn)
    for position, ops in enumerate(rules.apart):
        applied.keep_apart(f"fusion.apart.{position} [{', '.join(ops)}]", ops)
    for position, ops in enumerate(rules.join):
        applied.join(f"fusion.join.{position} [{', '.join(ops)}]", ops)


class _Applied:
    """The rules applied so far."""

    def __init__(
        self, chains: Chains, steps: Sequence[Step], grouping: Grouping, warn: Warn
    ) -> None:
        self._chains = chains
        self._grouping = grouping
        self._warn = warn
        self._calls: dict[str, list[str]] = {owner: [] for owner in chains.ops}
        for step in steps:
            self._calls[step.owner].append(step.name)
        self._owner = {step.name: step.owner for step in steps}
        self._apart: list[tuple[str, str, str]] = []
        self._taken: dict[str, str] = {}

    def keep_apart(self, rule: str, ops: Sequence[str]) -> None:
        """Cut the groups that hold what a rule keeps apart."""
        chains = [chain for start in self._chains.ops for chain in self._chains.at(start, ops)]
        stuck: Counter[str] = Counter()
        for before, after in dict.fromkeys(p for chain in chains for p in pairwise(chain.ops)):
            self._apart.append((rule, before, after))
            try:
                self._grouping.cut(before, self._calls[after])
            except ValueError as error:
                stuck[str(error)] += 1
        self._report(rule, ops, len(chains), stuck)

    def join(self, rule: str, ops: Sequence[str]) -> None:
        """Unite the groups of each chain that a rule matches and no rule before it."""
        stuck: Counter[str] = Counter()
        for start in self._chains.ops:
            reasons: list[str] = []
            for chain in self._chains.at(start, ops, self._taken):
                try:
                    self._unite(rule, chain)
                except ValueError as error:
                    reasons.append(str(error))
                else:
                    break
            else:
                stuck.update((reasons or self._contending(rule, start, ops))[:1])
        self._report(rule, ops, len(stuck) + (rule in self._taken.values()), stuck)

    def _unite(self, rule: str, chain: Chain) -> None:
        """Unite the groups of a chain; raises ValueError if another rule is against it."""
        calls = [name for owner in chain.path for name in self._calls[owner]]
        group = replace(self._grouping.around(calls), rule=rule)
        owners = {self._owner[name] for name in group.steps}
        for other, before, after in self._apart:
            if {before, after} <= owners:
                names = f"{self._chains.ops[before]} and {self._chains.ops[after]}"
                raise ValueError(f"{other} keeps apart {names}")
        for owner in owners & self._taken.keys():
            raise ValueError(f"{self._chains.ops[owner]} is taken by {self._taken[owner]}")
        if len(group.pieces) > 1:
            self._grouping.unite(group)
        self._taken.update(dict.fromkeys(owners, rule))

    def _contending(self, rule: str, start: str, ops: Sequence[str]) -> list[str]:
        """Say which rule has taken what is on a chain."""
        for chain in self._chains.at(start, ops):
            first = next(owner for owner in chain.path if owner in self._taken)
            if self._taken[first] != rule:
                return [f"{self._chains.ops[first]} is taken by {self._taken[first]}"]
        return []

    def _report(self, rule: str, ops: Sequence[str], matched: int, stuck: Counter[str]) -> None:
        if not matched:
            self._warn(f"{rule}: matches nothing: {self._chains.nearest(ops)}")
        for why, count in stuck.items():
            self._warn(f"{rule}: {count} of its matches stay as they are: {why}")
