"""Map kernel calls to the values of an ONNX model that they compute, by their nodes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autopipe.artifacts.model_nodes import KernelCall


@dataclass(frozen=True, slots=True)
class GraphValues:
    """The nodes of the outer graph of a model, in its order, and the readers of their outputs."""

    outputs: tuple[tuple[str, ...], ...]
    """Names of the outputs of each node."""
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
        """Return the values that each call of a run may compute; none where that is not known.

        Of several calls for one node, the last computes the output of the node.
        """
        last = {node: at for at, site in enumerate(sites) if not site.added for node in site.nodes}
        values = []
        for at, site in enumerate(sites):
            nodes = frozenset() if site.added else frozenset(site.nodes)
            values.append(
                tuple(self._list_leaving_values(nodes) if all(last[n] == at for n in nodes) else ())
            )
        return values

    def _list_leaving_values(self, nodes: frozenset[int]) -> Iterable[str]:
        """Yield outputs of the nodes that other nodes read, or that the model returns."""
        for node in sorted(nodes):
            for name in self.outputs[node] if node < len(self.outputs) else ():
                if name in self.results or self.readers.get(name, frozenset()) - nodes:
                    yield name


def _read_by(node: object) -> Iterable[str]:
    """Yield the names of the inputs of a node, those of its inner graphs included."""
    yield from filter(None, node.input)  # type: ignore[attr-defined]  # onnx has no types
    for attribute in node.attribute:  # type: ignore[attr-defined]
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _read_by(inner)
