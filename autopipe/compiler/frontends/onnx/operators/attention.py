"""Attention and its relatives, which ONNX defines as functions."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body

OPERATORS: Final = (
    Operator(name="Attention", since=25, body=write_onnx_body),
    Operator(name="Attention", domain=MICROSOFT, inputs=("input", "weights")),
    Operator(name="CausalConvWithState", since=27, body=write_onnx_body),
    Operator(name="LinearAttention", since=27, body=write_onnx_body),
    Operator(name="RotaryEmbedding", since=23, body=write_onnx_body),
)
