"""Map ONNX nodes to the variables of the imported graph."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tvm import relax
from tvm.ir import Expr, IRModule

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.labels.node_labels import Label, complete_labels
from autopipe.compiler.step_counter import count_steps

Origins = Mapping[str, frozenset[int]]
"""Indices of the model's nodes by the name of a node of the cleaned-up graph."""

NO_ORIGINS: Final[Origins] = MappingProxyType({})


class ConvertedNodes:
    """A record of converter results, which TVM binds to variables later."""

    def __init__(self, origins: Origins = NO_ORIGINS, nodes: int = 0) -> None:
        """Take the origins of nodes, and the number of nodes for the progress report."""
        self._origins = origins
        self._report = count_steps("nodes converted", nodes)
        self._count = 0
        self._labels: dict[int, tuple[Expr, Label]] = {}
        """By the hash of the value, which is its address: comparing values is slow in TVM."""

    def record(self, attributes: Attributes, result: Expr) -> None:
        """Record the result of a node by its attributes; a recorded value keeps its first node."""
        self._count += 1
        self._report(self._count)
        name = attributes.get("tvm_custom", {}).get("name", "")
        if nodes := self._origins.get(name):
            for value in _list_values(result):
                self._labels.setdefault(hash(value), (value, Label(tuple(sorted(nodes)))))

    def label(self, module: IRModule) -> IRModule:
        """Label the variables of the imported module."""
        if not self._origins:
            return module
        labels = {}
        for _, function in graph_functions(module):
            for binding in list_bindings(function):
                pair = self._labels.get(hash(binding.var)) or self._labels.get(hash(binding.value))
                if pair is not None:
                    labels[binding.var] = pair[1]
        return complete_labels(module, labels, imported=True)


def _list_values(value: Expr) -> Iterator[Expr]:
    if isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _list_values(field)
    elif isinstance(value, relax.Call | relax.Var | relax.TupleGetItem):
        yield value
