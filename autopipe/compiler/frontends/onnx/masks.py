"""Rows of an attention mask that hide everything.

They are found in a way that TVM computes exactly, and not looked for where there are none.
"""

from onnx import FunctionProto, TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.shapes import static
from autopipe.compiler.frontends.onnx.tensors import Proto


def ask_all(body: FunctionProto) -> None:
    """Ask whether all elements of a row are minus infinity, not whether the largest is.

    To TVM the largest of minus infinities alone is the least finite number.
    """
    largest = {node.output[0]: node for node in body.node if node.op_type == "ReduceMax"}
    nodes = []
    for node in body.node:
        reduction = largest.get(node.input[0]) if node.op_type == "Equal" else None
        if reduction is None:
            nodes.append(node)
            continue
        result = node.output[0]
        equal, number, least = (f"{result}_{part}" for part in ("equal", "number", "least"))
        minimum = helper.make_node("ReduceMin", [number, *reduction.input[1:]], [least])
        minimum.attribute.extend(reduction.attribute)
        nodes += [
            helper.make_node("Equal", [reduction.input[0], node.input[1]], [equal]),
            helper.make_node("Cast", [equal], [number], to=TensorProto.INT32),
            minimum,
            helper.make_node("Cast", [least], [result], to=TensorProto.BOOL),
        ]
    kept = FunctionProto()
    kept.node.extend(nodes)
    del body.node[:]
    body.node.extend(kept.node)


def drop_empty(graph: Proto) -> None:
    """Drop each choice between two tensors that always falls on the second."""
    never = {
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.BOOL and not numpy_helper.to_array(tensor).any()
    }
    shapes = static(graph)
    for node in graph.node:
        if node.op_type != "Where" or node.input[0] not in never:
            continue
        kept, result = node.input[2], node.output[0]
        if result in shapes and shapes.get(kept) == shapes[result]:
            node.CopyFrom(helper.make_node("Identity", [kept], [result], name=node.name))
