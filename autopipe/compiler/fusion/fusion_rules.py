"""Apply the section `fusion` of the pipeline file to the groups of TVM's fusion.

Example: TVM fuses [conv2d, add, relu] and leaves [softmax] alone. The rule `apart: [[nn.conv2d,
nn.relu]]` cuts the first group into [conv2d, add] and [relu]. After that, `join: [[nn.relu,
nn.softmax]]` makes the group [relu, softmax]. Without the first rule, the second one only warns:
the relu would bring its whole group along, including a convolution that the rule does not name.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autopipe.compiler.fusion.chains import Chain, Chains, FusionStep
from autopipe.compiler.fusion.grouping import Grouping

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FusionRules:
    """The section `fusion`: patterns of globs for names of ops, each the producer of the next."""

    join: Sequence[Sequence[str]] = ()
    """Patterns of ops that become one function."""
    apart: Sequence[Sequence[str]] = ()
    """Patterns of ops that are kept in separate functions."""

    def __bool__(self) -> bool:
        """Tell whether there is any rule."""
        return bool(self.join or self.apart)


def apply_rules(
    rules: FusionRules, steps: Sequence[FusionStep], grouping: Grouping, warn: Warn
) -> None:
    """Cut and unite groups according to the rules; pass matches without effect to `warn`.

    The rules `apart` come first, then the rules `join` in order; an op is joined once at most.
    """
    application = _Applied(Chains(steps), steps, grouping, warn)
    for position, ops in enumerate(rules.apart):
        application.keep_apart(f"fusion.apart.{position} [{', '.join(ops)}]", ops)
    for position, ops in enumerate(rules.join):
        application.join(f"fusion.join.{position} [{', '.join(ops)}]", ops)


class _Applied:
    """The rules applied so far: the pairs kept apart, and the rule that has taken each op."""

    def __init__(
        self, chains: Chains, steps: Sequence[FusionStep], grouping: Grouping, warn: Warn
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
        """Cut each group that holds two neighbours of a chain that the rule matches."""
        chains = [chain for start in self._chains.ops for chain in self._chains.at(start, ops)]
        stuck: Counter[str] = Counter()
        pairs = dict.fromkeys(pair for chain in chains for pair in pairwise(chain.ops))
        for before, after in pairs:
            self._apart.append((rule, before, after))
            try:
                self._grouping.cut(before, self._calls[after])
            except ValueError as error:
                stuck[str(error)] += 1
        self._warn_unapplied(rule, ops, len(chains), stuck)

    def join(self, rule: str, ops: Sequence[str]) -> None:
        """Unite the groups of each chain that the rule matches and no earlier rule has taken."""
        stuck: Counter[str] = Counter()
        for start in self._chains.ops:
            reasons: list[str] = []
            for chain in self._chains.at(start, ops, self._taken):
                try:
                    self._unite_chain(rule, chain)
                except ValueError as error:
                    reasons.append(str(error))
                else:
                    break
            else:
                stuck.update((reasons or self._find_conflict(rule, start, ops))[:1])
        self._warn_unapplied(rule, ops, len(stuck) + (rule in self._taken.values()), stuck)

    def _unite_chain(self, rule: str, chain: Chain) -> None:
        """Unite the groups of a chain. Raises ValueError if another rule forbids it."""
        calls = [name for owner in chain.path for name in self._calls[owner]]
        group = replace(self._grouping.around(calls), rule=rule)
        owners = {self._owner[name] for name in group.steps}
        for other_rule, before, after in self._apart:
            if {before, after} <= owners:
                names = f"{self._chains.ops[before]} and {self._chains.ops[after]}"
                raise ValueError(f"{other_rule} keeps apart {names}")
        for owner in owners & self._taken.keys():
            raise ValueError(f"{self._chains.ops[owner]} is taken by {self._taken[owner]}")
        if len(group.pieces) > 1:
            self._grouping.unite(group)
        self._taken.update(dict.fromkeys(owners, rule))

    def _find_conflict(self, rule: str, start: str, ops: Sequence[str]) -> list[str]:
        """Describe the other rule that has taken an op of a chain, or return []."""
        for chain in self._chains.at(start, ops):
            first = next(owner for owner in chain.path if owner in self._taken)
            if self._taken[first] != rule:
                return [f"{self._chains.ops[first]} is taken by {self._taken[first]}"]
        return []

    def _warn_unapplied(
        self, rule: str, ops: Sequence[str], match_count: int, stuck: Counter[str]
    ) -> None:
        if not match_count:
            self._warn(f"{rule}: matches nothing: {self._chains.nearest(ops)}")
        for reason, count in stuck.items():
            self._warn(f"{rule}: {count} of its matches stay as they are: {reason}")
