"""GroupNormalization of opset 18 to 20, whose scale and bias have a number for each group.

onnx's checker calls that definition deprecated, and onnxruntime computes it. With the channels of a
group as one, it is InstanceNormalization: x [2, 6, 5] in 3 groups is [2, 3, 10] of 3 channels.
"""

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.control.scopes import Names
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs


def rewrite_group_norms(graph: GraphProto) -> None:
    """Write each GroupNormalization of a graph and of those inside it as InstanceNormalization."""
    names = Names(graph)
    for inner in list_graphs(graph):
        for node in list(inner.node):
            if node.op_type == "GroupNormalization" and not node.domain:
                _rewrite_node(inner, node, names)


def _rewrite_node(graph: GraphProto, node: NodeProto, names: Names) -> None:
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    data, scale, bias = node.input
    whole, wanted, grouped, normal = (names.fresh(node.output[0]) for _ in range(4))
    groups = numpy_helper.from_array(np.array([0, given.pop("num_groups"), -1], np.int64))
    nodes = [
        helper.make_node("Shape", [data], [whole]),
        helper.make_node("Constant", [], [wanted], value=groups),
        helper.make_node("Reshape", [data, wanted], [grouped]),
        helper.make_node("InstanceNormalization", [grouped, scale, bias], [normal], **given),
        helper.make_node("Reshape", [normal, whole], list(node.output), name=node.name),
    ]
    place = list(graph.node).index(node)
    graph.node.remove(node)
    for made in reversed(nodes):
        graph.node.insert(place, made)
