"""Write an operator as a function body of simpler ONNX operators.

A quantized operand is three consecutive inputs: integers, scale and optional zero point. The
quantization of a result is two consecutive inputs, scale and zero point.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, NodeProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading.tensors import Array, describe_node, read_attributes
from autopipe.compiler.frontends.onnx.reading.value_types import Operand
from autopipe.errors import ModelError

_MIN_OPSET: Final = 13
"""The first opset in which QuantizeLinear has an axis, and squeezed axes are an input."""


class BodyWriter:
    """A writer of the function body of one node."""

    def __init__(self, node: NodeProto, operands: list[Operand], opset: int) -> None:
        self.node = node
        self.operands = operands
        self.opset = opset
        self.attributes = read_attributes(node)
        self.inputs = [f"in{at}" if name else f"none{at}" for at, name in enumerate(node.input)]
        self.steps: list[NodeProto] = []

    def name_input(self, at: int) -> str:
        """Return the name of an input, empty if it is absent."""
        return self.inputs[at] if at < len(self.inputs) and self.node.input[at] else ""

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:  # noqa: ANN401 - each of its own type
        """Add a node, and return the name of its result."""
        result = f"v{len(self.steps)}"
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        self.steps.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def add_ints(self, *values: int) -> str:
        """Add an int64 vector constant, and return its name."""
        return self.add("Constant", [], value=numpy_helper.from_array(np.array(values, np.int64)))

    def store(self, name: str, values: Array) -> str:
        """Add a constant under a name, which large ones keep as weights; returns the name."""
        self.add("Constant", [], value=numpy_helper.from_array(values))
        self.steps[-1].output[0] = name
        return name

    def add_floats(self, at: int, axis: int = 1) -> str:
        """Dequantize the operand of three inputs from `at` on, and return the name."""
        return self.add("DequantizeLinear", [self.name_input(at + i) for i in range(3)], axis=axis)

    def end_quantized(self, values: str, at: int) -> None:
        """End with a quantization by the scale and zero point at inputs `at` and `at + 1`."""
        self.end("QuantizeLinear", [values, self.name_input(at), self.name_input(at + 1)])

    def end(self, kind: str, inputs: list[str], **attributes: object) -> None:
        """Add the node that computes the result."""
        self.add(kind, inputs, **attributes)
        self.steps[-1].output[0] = "y"

    def pick_attributes(self, *names: str) -> dict[str, Any]:
        """Return the named attributes that the node has."""
        return {name: self.attributes[name] for name in names if name in self.attributes}

    def require_size(self, name: str) -> int:
        """Return a positive integer attribute; raises `ModelError` if it is not."""
        value = self.attributes.get(name)
        if not isinstance(value, int) or value < 1:
            raise self.refuse(f"attribute {name} has to be a number above 0")
        return value

    def refuse(self, why: str) -> ModelError:
        """Build the error that states why the node cannot be converted."""
        return ModelError(f"com.microsoft::{describe_node(self.node)}: {why}")


def write_body(
    make: Callable[[BodyWriter], None], node: NodeProto, operands: list[Operand], opset: int
) -> FunctionProto:
    """Adapt a function that uses a `BodyWriter`; raises `ModelError` before opset 13."""
    body = BodyWriter(node, operands, opset)
    if opset < _MIN_OPSET:
        raise body.refuse(f"opset {opset} is too old for it; convert the model to {_MIN_OPSET}")
    make(body)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function("", "", body.inputs, ["y"], body.steps, opsets)
