"""Finds inputs of one number that decide shapes, such as a length or a number of steps.

A package takes such an input, and *verify* draws it, at random: the model may mean few of these
numbers. What an input always is can be said in the pipeline file, before anything is built.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import find_operator, has_trait, list_named_inputs
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs


def warn_of_deciding_inputs(graph: GraphProto, inputs: Sequence[Value]) -> Iterator[str]:
    """Yield a line for each input of one number that decides a shape."""
    single = [one.name for one in inputs if not one.dimensions and math.prod(one.shape) == 1]
    found: dict[str, str] = {}
    carried = {name: {name} for name in single}
    for inner in list_graphs(graph):
        for node in inner.node:
            for name in _list_deciding_inputs(node, carried):
                found.setdefault(name, f"{node.op_type} {node.name or node.output[0]!r}")
            if has_trait(node, Trait.COMPUTES_SIZES):
                values = set[str]().union(*(carried.get(given, set()) for given in node.input))
                carried.update(dict.fromkeys(node.output, values) if values else {})
    for name, where in found.items():
        yield (
            f"input {name!r} decides shapes, in {where}: verify draws it at random; "
            f"model.inputs.{name}.value says what it always is"
        )


def _list_deciding_inputs(node: NodeProto, carried: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the inputs of the model that decide a shape in a node."""
    operator = find_operator(node)
    for name in list_named_inputs(node, () if operator is None else operator.deciding):
        yield from sorted(carried.get(name, ()))
