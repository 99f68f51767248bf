"""Find scalar inputs that determine shapes, such as a length or a number of steps.

*verify* draws such an input at random, but the model may support few of these numbers. A constant
value of an input can be configured in the pipeline file before the build.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import find_operator, has_trait, list_named_inputs
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs


def warn_of_deciding_inputs(graph: GraphProto, inputs: Sequence[Value]) -> Iterator[str]:
    """Yield a warning for each scalar input that determines a shape."""
    single = [one.name for one in inputs if not one.dimensions and math.prod(one.shape) == 1]
    uses: dict[str, str] = {}
    sources = {name: {name} for name in single}
    for inner in list_graphs(graph):
        for node in inner.node:
            for name in _list_deciding_inputs(node, sources):
                uses.setdefault(name, f"{node.op_type} {node.name or node.output[0]!r}")
            if has_trait(node, Trait.COMPUTES_SIZES):
                values = set[str]().union(*(sources.get(given, set()) for given in node.input))
                sources.update(dict.fromkeys(node.output, values) if values else {})
    for name, use in uses.items():
        yield (
            f"input {name!r} decides shapes, in {use}: verify draws it at random; "
            f"model.inputs.{name}.value says what it always is"
        )


def _list_deciding_inputs(node: NodeProto, sources: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the model inputs that determine a shape in a node."""
    operator = find_operator(node)
    for name in list_named_inputs(node, () if operator is None else operator.deciding):
        yield from sorted(sources.get(name, ()))
