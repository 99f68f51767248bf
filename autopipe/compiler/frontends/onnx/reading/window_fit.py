"""Check that windows and reflect pads are not larger than their input."""

from collections.abc import Mapping

from onnx import GraphProto

from autopipe.compiler.frontends.onnx.operators import find_operator


def check_sizes(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ModelError for a window larger than its input; `shapes` are all static shapes."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        operator = find_operator(node)
        if operator is not None and operator.check_sizes is not None:
            operator.check_sizes(node, shapes, initializers)
