"""Compare a profile with that of onnxruntime, matched by the names of nodes.

Both fuse nodes, but differently. So nodes are grouped: the nodes of one of our kernels are in one
group, and groups with a common node are merged.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from autopipe.artifacts.document import Part
from autopipe.artifacts.model_nodes import ModelNode
from autopipe.profiling.profile import Profile


class ComparedGroup(Part, frozen=True):
    """A group of nodes that is compared as a whole."""

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
        """Return our time divided by theirs; None if they have no separate time for it."""
        return self.ours / self.theirs if self.theirs else None


class ComparedProfile(Part, frozen=True):
    """The comparison of two profiles, in ascending order of our advantage."""

    runtime: str
    ours: float
    """Seconds of a whole run without instrumentation."""
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
    node_names = {output: node.name for node in nodes for output in node.outputs}
    node_names |= {node.name: node.name for node in nodes}
    ours: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in profile.rows:
        if row.kernel and row.nodes:
            ours[groups.find(row.nodes[0])].append((row.symbol, row.seconds))
    theirs: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for name, seconds in times.items():
        if name:
            node = match_node(name, node_names)
            theirs[groups.find(node) if node else name].append((name, seconds))
    compared_groups = [
        ComparedGroup(
            nodes=tuple(groups.members(root)) if root in ours else (),
            kernels=tuple(dict.fromkeys(symbol for symbol, _ in ours.get(root, ()))),
            theirs_nodes=tuple(name for name, _ in theirs.get(root, ())),
            ours=sum(seconds for _, seconds in ours.get(root, ())),
            theirs=sum(seconds for _, seconds in theirs.get(root, ())),
        )
        for root in dict.fromkeys([*ours, *theirs])
    ]
    compared_groups.sort(key=lambda group: group.theirs - group.ours)
    return ComparedProfile(
        runtime=runtime, ours=profile.whole, theirs=times[""], groups=tuple(compared_groups)
    )


def match_node(name: str, node_names: Mapping[str, str]) -> str | None:
    """Return the node of the model that corresponds to a node of onnxruntime's graph, or None.

    It derives the names of fused nodes and changed layouts from one node, such as `conv1_nchwc` or
    `fused conv1`: the longest name in it that is delimited counts. `node_names` maps names of nodes
    and of their outputs to nodes.
    """
    if name in node_names:
        return node_names[name]
    best = None
    for candidate in node_names:
        at = name.find(candidate) if candidate else -1
        if at < 0 or (best is not None and len(candidate) <= len(best)):
            continue
        before, after = name[:at], name[at + len(candidate) :]
        if not (before[-1:].isalnum() or after[:1].isalnum()):
            best = candidate
    return None if best is None else node_names[best]


class _Groups:
    """Disjoint sets of nodes (union-find)."""

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
