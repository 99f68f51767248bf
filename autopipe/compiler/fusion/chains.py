"""Chains of ops in a graph, found by pattern along the dataflow."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Step:
    """One binding before fusion."""

    name: str
    """The variable it binds."""
    op: str
    """Relax's name of the op it computes; empty if it computes none."""
    owner: str
    """The last step of that op; some ops become several calls."""
    reads: tuple[str, ...]
    """Steps it reads."""
    simple: bool
    """Whether it is elementwise, broadcast or injective: it sums nothing."""
    obstacle: str | None = None
    """Why it can not be moved to another function, if it can not."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops, by their owners, each of which a later one reads by way of simple ops."""

    ops: tuple[str, ...]
    """Those that the pattern names."""
    path: tuple[str, ...]
    """These, and what is between them."""


class Chains:
    """The ops of a graph; its steps are in an order in which each follows what it reads."""

    def __init__(self, steps: Sequence[Step]) -> None:
        owner = {step.name: step.owner for step in steps}
        self.ops: Mapping[str, str] = {step.owner: step.op for step in steps}
        self._simple = self.ops.keys() - {step.owner for step in steps if not step.simple}
        consumers: dict[str, dict[str, None]] = {name: {} for name in self.ops}
        for step in steps:
            for read in step.reads:
                if owner[read] != step.owner:
                    consumers[owner[read]][step.owner] = None
        self._consumers: Mapping[str, Collection[str]] = consumers

    def at(
        self, start: str, pattern: Sequence[str], blocked: Collection[str] = ()
    ) -> Iterator[Chain]:
        """Yield the shortest chain from an op to each that may be last, the shorter first.

        What is `blocked` is on no chain.
        """
        for chain in self._walk(start, pattern, blocked):
            if len(chain.ops) == len(pattern):
                yield chain

    def nearest(self, pattern: Sequence[str]) -> str:
        """Say which chain comes nearest to a pattern, and what reads its end."""
        best = Chain((), ())
        for start in self.ops:
            for chain in self._walk(start, pattern, ()):
                best = max(best, chain, key=lambda each: len(each.ops))
        if not best.ops:
            return f"there is no {pattern[0]}"
        after = sorted({self.ops[each] for each in self._consumers[best.path[-1]]} - {""})
        read = f"feeds {', '.join(after)}" if after else "feeds nothing"
        return f"the nearest is {', '.join(self.ops[each] for each in best.ops)}, which {read}"

    def _walk(
        self, start: str, pattern: Sequence[str], blocked: Collection[str]
    ) -> Iterator[Chain]:
        """Yield the chains that begin as the pattern does, each with an op it names at its end."""
        queue = deque([(start, Chain((), ()))])
        seen: set[tuple[str, int]] = set()
        while queue:
            at, chain = queue.popleft()
            count = len(chain.ops)
            fits = bool(self.ops[at]) and fnmatchcase(self.ops[at], pattern[count])
            passes = count > 0 and at in self._simple
            if at in blocked or (at, count) in seen or not (fits or passes):
                continue
            seen.add((at, count))
            chain = Chain((*chain.ops, at) if fits else chain.ops, (*chain.path, at))
            if fits:
                yield chain
            if len(chain.ops) < len(pattern):
                queue.extend((each, chain) for each in self._consumers[at])
