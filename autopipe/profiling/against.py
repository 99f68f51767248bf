"""A profile beside that of onnxruntime, matched by the names of nodes.

Both fuse nodes, each in its own way. So nodes are put into groups: those that a kernel of ours
computes belong together, and those that two kernels have in common join their groups.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from autopipe.artifacts.document import Part
from autopipe.artifacts.model_nodes import ModelNode
from autopipe.profiling.profile import Profile


class ComparedGroup(Part, frozen=True):
    """Nodes that are compared together."""

    nodes: tuple[str, ...]
    kernels: tuple[str, ...]
    """Ours, in their order."""
    theirs_nodes: tuple[str, ...]
    """Nodes of onnxruntime's graph."""
    ours: float
    """Seconds in a run."""
    theirs: float

    @property
    def ratio(self) -> float | None:
        """Return our time over theirs; None where they have no time of their own for it."""
        return self.ours / self.theirs if self.theirs else None


class ComparedProfile(Part, frozen=True):
    """Two profiles of one model, where the reference is ahead first."""

    runtime: str
    ours: float
    """Seconds of a whole run that nothing watches."""
    theirs: float
    groups: tuple[ComparedGroup, ...]


def compare_profiles(
    profile: Profile, nodes: Sequence[ModelNode], runtime: str, times: Mapping[str, float]
) -> ComparedProfile:
    """Compare a profile with the times of onnxruntime's nodes; `times[""]` is its whole run."""
    groups = _Groups()
    for row in profile.rows:
        if row.kernel and row.nodes:
            groups.join(row.nodes)
    known = {output: node.name for node in nodes for output in node.outputs}
    known |= {node.name: node.name for node in nodes}
    ours: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in profile.rows:
        if row.kernel and row.nodes:
            ours[groups.find(row.nodes[0])].append((row.symbol, row.seconds))
    theirs: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for name, seconds in times.items():
        if name:
            own = match_node(name, known)
            theirs[groups.find(own) if own else name].append((name, seconds))
    compared = [
        ComparedGroup(
            nodes=tuple(groups.members(root)) if root in ours else (),
            kernels=tuple(dict.fromkeys(symbol for symbol, _ in ours.get(root, ()))),
            theirs_nodes=tuple(name for name, _ in theirs.get(root, ())),
            ours=sum(seconds for _, seconds in ours.get(root, ())),
            theirs=sum(seconds for _, seconds in theirs.get(root, ())),
        )
        for root in dict.fromkeys([*ours, *theirs])
    ]
    compared.sort(key=lambda group: group.theirs - group.ours)
    return ComparedProfile(
        runtime=runtime, ours=profile.whole, theirs=times[""], groups=tuple(compared)
    )


def match_node(name: str, known: Mapping[str, str]) -> str | None:
    """Return the node of the model that a node of onnxruntime's graph was made of, or None.

    It names nodes that it fuses or lays out otherwise after one of them, such as `conv1_nchwc` or
    `fused conv1`: the longest name in it that stands by itself counts. `known` has the node of each
    name, its own or that of a value that it makes.
    """
    if name in known:
        return known[name]
    best = None
    for one in known:
        at = name.find(one) if one else -1
        if at < 0 or (best is not None and len(one) <= len(best)):
            continue
        before, after = name[:at], name[at + len(one) :]
        if not (before[-1:].isalnum() or after[:1].isalnum()):
            best = one
    return None if best is None else known[best]


class _Groups:
    """Sets of nodes that have no node in common."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def find(self, name: str) -> str:
        parent = self._parents.setdefault(name, name)
        while parent != self._parents[parent]:
            parent = self._parents[parent]
        return parent

    def join(self, names: Sequence[str]) -> None:
        for name in names:
            self._parents[self.find(name)] = self.find(names[0])

    def members(self, root: str) -> list[str]:
        return [name for name in self._parents if self.find(name) == root]
