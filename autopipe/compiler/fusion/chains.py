"""Find chains of ops in a graph by a pattern, along the dataflow.

Example: the graph computes conv2d, then add (a bias), then relu. The pattern ["nn.conv2d",
"nn.relu"] finds one chain: its ops are the convolution and the relu, its path has the add, too,
as an elementwise op may lie between two ops of a pattern. ["nn.conv2d", "nn.softmax"] finds none.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class FusionStep:
    """One binding of `main` before fusion."""

    name: str
    """The variable it binds."""
    op: str
    """Name of its Relax op, such as `nn.conv2d`; empty if it computes no op."""
    owner: str
    """Name of the last step of the same op: some ops are legalized to several calls."""
    reads: tuple[str, ...]
    """Names of its producers."""
    simple: bool
    """Whether it is elementwise, a broadcast or injective: no reduction."""
    obstacle: str | None = None
    """The reason why it cannot be moved to another function, or None."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops that follow each other in the dataflow, with simple ops in between; named by owners."""

    ops: tuple[str, ...]
    """The ops that the pattern names."""
    path: tuple[str, ...]
    """These ops and those between them."""


class Chains:
    """The ops of a graph, from steps in topological order."""

    def __init__(self, steps: Sequence[FusionStep]) -> None:
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
        self, start: str, pattern: Sequence[str], excluded_ops: Collection[str] = ()
    ) -> Iterator[Chain]:
        """Yield the chains that begin with the op `start` and match the whole pattern.

        There is one chain, a shortest one, for each op that can be the last; shorter chains come
        first. No chain goes through an op of `excluded_ops`.
        """
        for chain in self._match_prefixes(start, pattern, excluded_ops):
            if len(chain.ops) == len(pattern):
                yield chain

    def nearest(self, pattern: Sequence[str]) -> str:
        """Describe the chain that matches most of a pattern, and the consumers of its end."""
        best = Chain((), ())
        for start in self.ops:
            for chain in self._match_prefixes(start, pattern, ()):
                best = max(best, chain, key=lambda match: len(match.ops))
        if not best.ops:
            return f"there is no {pattern[0]}"
        after = sorted({self.ops[reader] for reader in self._consumers[best.path[-1]]} - {""})
        read = f"feeds {', '.join(after)}" if after else "feeds nothing"
        return f"the nearest is {', '.join(self.ops[op] for op in best.ops)}, which {read}"

    def _match_prefixes(
        self, start: str, pattern: Sequence[str], excluded_ops: Collection[str]
    ) -> Iterator[Chain]:
        """Yield the chains that match a prefix of the pattern, by breadth-first search."""
        queue = deque([(start, Chain((), ()))])
        visited: set[tuple[str, int]] = set()
        while queue:
            at, chain = queue.popleft()
            count = len(chain.ops)
            fits = bool(self.ops[at]) and fnmatchcase(self.ops[at], pattern[count])
            passes = count > 0 and at in self._simple
            if at in excluded_ops or (at, count) in visited or not (fits or passes):
                continue
            visited.add((at, count))
            chain = Chain((*chain.ops, at) if fits else chain.ops, (*chain.path, at))
            if fits:
                yield chain
            if len(chain.ops) < len(pattern):
                queue.extend((reader, chain) for reader in self._consumers[at])
