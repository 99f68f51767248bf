"""GroupNormalization of opsets 18 to 20, with one scale and bias per group.

onnx's checker calls that definition deprecated, but onnxruntime supports it. With each group
reshaped to a channel it is InstanceNormalization: x [2, 6, 5] in 3 groups is [2, 3, 10].
"""

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.control.scopes import Names
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs, read_attributes


def rewrite_group_norms(graph: GraphProto) -> None:
    """Rewrite each GroupNormalization, also in inner graphs, as InstanceNormalization."""
    names = Names(graph)
    for inner in list_graphs(graph):
        for node in list(inner.node):
            if node.op_type == "GroupNormalization" and not node.domain:
                _rewrite_node(inner, node, names)


def _rewrite_node(graph: GraphProto, node: NodeProto, names: Names) -> None:
    attributes = read_attributes(node)
    data, scale, bias = node.input
    input_shape, grouped_shape, grouped_data, normal = (
        names.fresh(node.output[0]) for _ in range(4)
    )
    groups = numpy_helper.from_array(np.array([0, attributes.pop("num_groups"), -1], np.int64))
    nodes = [
        helper.make_node("Shape", [data], [input_shape]),
        helper.make_node("Constant", [], [grouped_shape], value=groups),
        helper.make_node("Reshape", [data, grouped_shape], [grouped_data]),
        helper.make_node(
            "InstanceNormalization", [grouped_data, scale, bias], [normal], **attributes
        ),
        helper.make_node("Reshape", [normal, input_shape], list(node.output), name=node.name),
    ]
    place = list(graph.node).index(node)
    graph.node.remove(node)
    for new_node in reversed(nodes):
        graph.node.insert(place, new_node)
