"""Expand operators with a function body into simpler operators.

Most bodies are the onnx library's, for the model's opset; some are ours. Each becomes a function of
the model, which onnx's inliner expands. Its own inlining of ONNX operators fails on an absent
optional input.
"""

from collections.abc import Iterator
from typing import Final

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
from autopipe.compiler.frontends.onnx.operators import OPERATORS, find_operator, has_trait
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    describe_node,
    list_graphs,
    list_nodes,
    read_stored,
)
from autopipe.compiler.frontends.onnx.reading.value_types import Operand, UnknownOperand
from autopipe.compiler.frontends.onnx.rewriting.node_origins import mark_body
from autopipe.errors import ModelError

_ONNX: Final = ("", "ai.onnx")
_OURS: Final = "autopipe.bodies"
_ROUNDS: Final = 4
"""Maximum nesting of expanded operators in bodies."""
_MOST_BYTES: Final = 2**28
"""Maximum total size of all bodies in bytes."""


def expand_operators(model: ModelProto, *, is_folded: bool) -> ModelProto:
    """Expand all operators that have a function body; returns the model itself if there are none.

    Before constants are folded, those stay whose body depends on what is not known yet. Raises
    `ModelError` for an operator that has no body here.
    """
    for _ in range(_ROUNDS):
        if not any(_list_expandable(model)):
            return model
        expanded_model = _expand_once(model, is_folded=is_folded)
        if expanded_model is None:
            return model
        model = expanded_model
    return model


def complete_attributes(graph: GraphProto) -> None:
    """Add default attributes without which the onnx library infers a wrong type, or none."""
    for node in list_nodes(graph):
        if has_trait(node, Trait.NEEDS_DEFAULTS):
            _fill_attributes(node, onnx.defs.get_schema(node.op_type))


def _list_expandable(model: ModelProto) -> Iterator[NodeProto]:
    for node in list_nodes(model.graph):
        operator = find_operator(node)
        if operator is not None and operator.body is not None:
            yield node


def _expand_once(model: ModelProto, *, is_folded: bool) -> ModelProto | None:
    """Expand the operators of a model, not those in their bodies; None if none can be expanded."""
    typed_model = infer_types(model)
    types, constants = _read_types(typed_model), _read_constants(typed_model)
    opset = next(entry.version for entry in typed_model.opset_import if entry.domain in _ONNX)
    size = 0
    for number, node in enumerate(list(_list_expandable(typed_model))):
        operands = [
            Operand(types.get(name, TypeProto()), constants.get(name)) for name in node.input
        ]
        body = _write_body(node, operands, opset, is_folded=is_folded)
        if body is None:
            continue
        size += body.ByteSize()
        if size > _MOST_BYTES:
            raise ModelError(f"constants of {node.op_type} and its like take {size} bytes and more")
        mark_body(body.node, node)
        body.domain, body.name = _OURS, f"{node.op_type}{number}"
        node.domain, node.op_type = body.domain, body.name
        typed_model.functions.append(body)
    if not typed_model.functions:
        return None
    _drop_stale_types(typed_model)
    typed_model.opset_import.append(helper.make_opsetid(_OURS, 1))
    return inliner.inline_local_functions(typed_model)


def _drop_stale_types(model: ModelProto) -> None:
    """Drop noted types of values that no node computes: the inliner takes their names again."""
    for graph in list_graphs(model.graph):
        computed_names = {name for node in graph.node for name in node.output}
        for index, value in reversed(list(enumerate(graph.value_info))):
            if value.name not in computed_names:
                del graph.value_info[index]


def _read_types(model: ModelProto) -> dict[str, TypeProto]:
    types = {
        value.name: value.type
        for graph in list_graphs(model.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    initializers = (tensor for graph in list_graphs(model.graph) for tensor in graph.initializer)
    return types | {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in initializers
    }


def _read_constants(model: ModelProto) -> dict[str, Array]:
    stored = (read_stored(graph) for graph in list_graphs(model.graph))
    return {name: numpy_helper.to_array(each) for graph in stored for name, each in graph.items()}


def _write_body(
    node: NodeProto, operands: list[Operand], opset: int, *, is_folded: bool
) -> FunctionProto | None:
    """Return the function body of a node, after adding its default attributes.

    None for one that depends on what may be known once constants are folded.
    """
    operator = OPERATORS[node.domain.removeprefix("ai.onnx"), node.op_type]
    if operator.domain == ONNX:
        _fill_attributes(node, onnx.defs.get_schema(node.op_type, opset))
    if operator.body is None:
        raise ModelError(f"operator {node.op_type} has no body")
    try:
        return operator.body(node, operands, opset)
    except UnknownOperand:
        if not is_folded:
            return None
        if operator.dynamic_body is None:
            raise
        return operator.dynamic_body(node, operands, opset)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # missing or invalid attributes: no library checks them all
        message = f"{describe_node(node)} cannot be written as simpler operators"
        raise ModelError(f"{message}: {describe_error(error)}") from error


def _fill_attributes(node: NodeProto, schema: onnx.defs.OpSchema) -> None:
    present_names = {attribute.name for attribute in node.attribute}
    node.attribute.extend(
        attribute.default_value
        for name, attribute in schema.attributes.items()
        if name not in present_names and attribute.default_value.name
    )
