"""Losses, which ONNX defines as functions."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body

OPERATORS: Final = (
    Operator(name="NegativeLogLikelihoodLoss", since=22, body=write_onnx_body),
    Operator(name="SoftmaxCrossEntropyLoss", since=13, body=write_onnx_body),
)
