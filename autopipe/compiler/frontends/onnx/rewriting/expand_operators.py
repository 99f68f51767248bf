"""Operators that are defined by simpler ones, written as those.

Most bodies are the onnx library's, for the model's operator set. Some are ours, where it has
none. Each becomes a function of the model, which the inliner of that library puts in place. Its own
way with the operators of ONNX stops at an input that is left out.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    helper,
    inliner,
    numpy_helper,
)

from autopipe.compiler.frontends.onnx.conversion.failing_node import describe_error
from autopipe.compiler.frontends.onnx.operator import ONNX, Trait
from autopipe.compiler.frontends.onnx.operators import OPERATORS, find_operator
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.operand import Operand
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    describe_node,
    list_graphs,
)
from autopipe.compiler.frontends.onnx.rewriting.node_origins import mark_body
from autopipe.errors import ModelError

_ONNX: Final = ("", "ai.onnx")
_OURS: Final = "autopipe.bodies"
_ROUNDS: Final = 4
"""A body may hold another of these operators; no chain is longer."""
_MOST_BYTES: Final = 2**28
"""What the constants of all bodies may take."""


def expand_operators(model: ModelProto) -> ModelProto:
    """Return a model with the bodies of such operators in their place.

    Raises `ModelError` for an operator that has no body here.
    """
    for _ in range(_ROUNDS):
        if not any(_list_expandable(model)):
            return model
        model = _expand_once(model)
    return model


def complete_attributes(graph: GraphProto) -> None:
    """Write out the attributes without which the onnx library infers a wrong type, or none."""
    for inner in list_graphs(graph):
        for node in inner.node:
            operator = find_operator(node)
            if operator is not None and operator.has(Trait.NEEDS_DEFAULTS):
                _fill_attributes(node, onnx.defs.get_schema(node.op_type))


def _list_expandable(model: ModelProto) -> Iterator[NodeProto]:
    for graph in list_graphs(model.graph):
        for node in graph.node:
            operator = find_operator(node)
            if operator is not None and operator.body is not None:
                yield node


def _expand_once(model: ModelProto) -> ModelProto:
    typed = infer_types(model)
    types, constants = _read_types(typed), _read_constants(typed)
    opset = next(entry.version for entry in typed.opset_import if entry.domain in _ONNX)
    size = 0
    for number, node in enumerate(list(_list_expandable(typed))):
        operands = [
            Operand(types.get(name, TypeProto()), constants.get(name)) for name in node.input
        ]
        body = _write_body(node, operands, opset)
        size += body.ByteSize()
        if size > _MOST_BYTES:
            raise ModelError(f"constants of {node.op_type} and its like take {size} bytes and more")
        mark_body(body.node, node)
        body.domain, body.name = _OURS, f"{node.op_type}{number}"
        node.domain, node.op_type = body.domain, body.name
        typed.functions.append(body)
    typed.opset_import.append(helper.make_opsetid(_OURS, 1))
    return inliner.inline_local_functions(typed)


def _read_types(model: ModelProto) -> dict[str, TypeProto]:
    found = {
        value.name: value.type
        for graph in list_graphs(model.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    stored = (tensor for graph in list_graphs(model.graph) for tensor in graph.initializer)
    return found | {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in stored
    }


def _read_constants(model: ModelProto) -> dict[str, Array]:
    found = {}
    for graph in list_graphs(model.graph):
        found.update({each.name: numpy_helper.to_array(each) for each in graph.initializer})
        for node in graph.node:
            value = node.attribute[0] if node.op_type == "Constant" else None
            if value is not None and value.HasField("t"):
                found[node.output[0]] = numpy_helper.to_array(value.t)
            elif value is not None and value.name in ("value_int", "value_ints"):
                found[node.output[0]] = np.array(helper.get_attribute_value(value))
    return found


def _write_body(node: NodeProto, operands: list[Operand], opset: int) -> FunctionProto:
    """Return what defines an operator; fill in the attributes it leaves out."""
    operator = OPERATORS[node.domain.removeprefix("ai.onnx"), node.op_type]
    if operator.domain == ONNX:
        _fill_attributes(node, onnx.defs.get_schema(node.op_type, opset))
    if operator.body is None:
        raise ModelError(f"operator {node.op_type} has no body")
    try:
        return operator.body(node, operands, opset)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # attributes that are missing or wrong: no library checks them all
        what = f"{describe_node(node)} cannot be written as simpler operators"
        raise ModelError(f"{what}: {describe_error(error)}") from error


def _fill_attributes(node: NodeProto, schema: onnx.defs.OpSchema) -> None:
    given = {attribute.name for attribute in node.attribute}
    node.attribute.extend(
        attribute.default_value
        for name, attribute in schema.attributes.items()
        if name not in given and attribute.default_value.name
    )
