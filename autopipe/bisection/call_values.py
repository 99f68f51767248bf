"""Which value of an ONNX model a kernel call makes, by the nodes that it computes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autopipe.artifacts.model_nodes import KernelCall


@dataclass(frozen=True, slots=True)
class GraphValues:
    """The nodes of the outer graph of a model, in its order, and who reads their outputs."""

    outputs: tuple[tuple[str, ...], ...]
    """What each node makes."""
    readers: dict[str, frozenset[int]]
    """Positions of the nodes that read a value."""
    results: frozenset[str]
    """Outputs of the model."""

    @classmethod
    def read(cls, model: Path) -> "GraphValues":
        """Read them from a model, without its weights. Nodes with inner graphs read more."""
        import onnx

        graph = onnx.load(str(model), load_external_data=False).graph
        readers: dict[str, set[int]] = defaultdict(set)
        for at, node in enumerate(graph.node):
            for name in _read_by(node):
                readers[name].add(at)
        return cls(
            outputs=tuple(tuple(filter(None, node.output)) for node in graph.node),
            readers={name: frozenset(found) for name, found in readers.items()},
            results=frozenset(value.name for value in graph.output),
        )

    def of_calls(self, sites: Sequence[KernelCall]) -> list[tuple[str, ...]]:
        """Return for each call of a run the values that it may make; none where that is not known.

        Of several calls for one node, the last makes what the node makes.
        """
        last = {node: at for at, site in enumerate(sites) if not site.added for node in site.nodes}
        found = []
        for at, site in enumerate(sites):
            own = frozenset() if site.added else frozenset(site.nodes)
            found.append(
                tuple(self._list_leaving_values(own) if all(last[n] == at for n in own) else ())
            )
        return found

    def _list_leaving_values(self, nodes: frozenset[int]) -> Iterable[str]:
        """Yield the values that nodes make and others read, or that the model returns."""
        for node in sorted(nodes):
            for name in self.outputs[node] if node < len(self.outputs) else ():
                if name in self.results or self.readers.get(name, frozenset()) - nodes:
                    yield name


def _read_by(node: object) -> Iterable[str]:
    """Yield what a node reads, its inner graphs included."""
    yield from filter(None, node.input)  # type: ignore[attr-defined]  # onnx has no types
    for attribute in node.attribute:  # type: ignore[attr-defined]
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _read_by(inner)
