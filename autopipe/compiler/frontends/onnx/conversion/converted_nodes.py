"""Which variables of an imported graph each ONNX node became."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tvm import relax
from tvm.ir import Expr, IRModule

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.labels.node_labels import Label, complete_labels, set_labels
from autopipe.compiler.step_counter import count_steps

Origins = Mapping[str, frozenset[int]]
"""Numbers of the model's nodes by the name of a node of the cleaned-up graph."""

NO_ORIGINS: Final[Origins] = MappingProxyType({})


class ConvertedNodes:
    """Records what converters return, which TVM binds to variables later."""

    def __init__(self, origins: Origins = NO_ORIGINS, nodes: int = 0) -> None:
        """Take where nodes come from, and the number of nodes of the graph for its progress."""
        self._origins = origins
        self._report = count_steps("nodes converted", nodes)
        self._converted = 0
        self._labels: dict[int, tuple[Expr, Label]] = {}
        """By the hash of the value, which is its address: TVM takes long to compare values."""

    def record(self, attributes: Attributes, made: Expr) -> None:
        """Record what the node of these attributes became; what is there already keeps its node."""
        self._converted += 1
        self._report(self._converted)
        name = attributes.get("tvm_custom", {}).get("name", "")
        if nodes := self._origins.get(name):
            for value in _list_values(made):
                self._labels.setdefault(hash(value), (value, Label(tuple(sorted(nodes)))))

    def label(self, module: IRModule) -> IRModule:
        """Return the imported module, its variables labelled."""
        if not self._origins:
            return module
        found = {}
        for _, function in graph_functions(module):
            for binding in list_bindings(function):
                pair = self._labels.get(hash(binding.var)) or self._labels.get(hash(binding.value))
                if pair is not None:
                    found[binding.var] = pair[1]
        return complete_labels(set_labels(module, found), imported=True)


def _list_values(made: Expr) -> Iterator[Expr]:
    if isinstance(made, relax.Tuple):
        for field in made.fields:
            yield from _list_values(field)
    elif isinstance(made, relax.Call | relax.Var | relax.TupleGetItem):
        yield made
