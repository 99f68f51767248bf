"""Operators that ONNX defines as functions: the onnx library has their bodies."""

from typing import Any, Final

import onnx
from onnx import FunctionProto, NodeProto, helper

from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator
from autopipe.compiler.frontends.onnx.reading.value_types import Operand
from autopipe.errors import ModelError


def write_onnx_body(node: NodeProto, operands: list[Operand], opset: int) -> FunctionProto:
    """Return the onnx library's function body for a node; raises ModelError if there is none."""
    schema = onnx.defs.get_schema(node.op_type, opset)
    body = _read_body(schema, node, operands, opset)
    if not body.node:
        raise ModelError(f"operator {node.op_type} of opset {opset} is not supported")
    del body.opset_import[:]  # its operators are the same up to the model's opset
    body.opset_import.append(helper.make_opsetid("", opset))
    return body


def _read_body(
    schema: Any,  # noqa: ANN401 - its stub lacks these attributes
    node: NodeProto,
    operands: list[Operand],
    opset: int,
) -> FunctionProto:
    """Return the newest function body for an opset, empty if there is none."""
    body = FunctionProto()
    versions = [version for version in schema.function_opset_versions if version <= opset]
    if versions:
        body.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return body
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if versions:
        types = [operand.type.SerializeToString() for operand in operands]
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), types
        )
        body.ParseFromString(text)
    return body


OPERATORS: Final = (
    Operator(name="Attention", since=25, body=write_onnx_body),
    Operator(name="Attention", domain=MICROSOFT, inputs=("input", "weights")),
    Operator(name="CausalConvWithState", since=27, body=write_onnx_body),
    Operator(name="LinearAttention", since=27, body=write_onnx_body),
    Operator(name="RotaryEmbedding", since=23, body=write_onnx_body),
    Operator(name="NegativeLogLikelihoodLoss", since=22, body=write_onnx_body),
    Operator(name="SoftmaxCrossEntropyLoss", since=13, body=write_onnx_body),
)
