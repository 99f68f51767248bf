"""Operators of onnxruntime on quantized tensors."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.operand import Operand
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator
from autopipe.compiler.frontends.onnx.tensors import Proto, called
from autopipe.errors import ModelError

_MIN_OPSET: Final = 13
"""From here on QuantizeLinear has an axis, and squeezed axes are an input."""
_CHANNELS_LAST: Final = "channels_last"
Maker = Callable[["_Body"], None]
_WINDOW: Final = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


class _Body:
    """The body of one node, as it grows."""

    def __init__(self, node: Proto, operands: list[Operand], opset: int) -> None:
        self.node = node
        self.operands = operands
        self.opset = opset
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.inputs = [f"in{at}" if name else f"none{at}" for at, name in enumerate(node.input)]
        self.steps: list[Proto] = []

    def given(self, at: int) -> str:
        """Return the name of an input, empty if it is left out."""
        return self.inputs[at] if at < len(self.inputs) and self.node.input[at] else ""

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:  # noqa: ANN401
        """Add a node, and return the name of its result."""
        result = f"v{len(self.steps)}"
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        self.steps.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def ints(self, *values: int) -> str:
        return self.add("Constant", [], value=numpy_helper.from_array(np.array(values, np.int64)))

    def floats(self, at: int, axis: int = 1) -> str:
        """Return the floats that the operand from an input on stands for."""
        return self.add("DequantizeLinear", [self.given(at + i) for i in range(3)], axis=axis)

    def quantize(self, values: str, at: int) -> None:
        """End with the bytes of the scale and zero point from an input on."""
        self.end("QuantizeLinear", [values, self.given(at), self.given(at + 1)])

    def end(self, kind: str, inputs: list[str], **attributes: Any) -> None:  # noqa: ANN401
        self.add(kind, inputs, **attributes)
        self.steps[-1].output[0] = "y"

    def kept(self, *names: str) -> dict[str, Any]:
        return {name: self.attributes[name] for name in names if name in self.attributes}

    def refuse(self, why: str) -> ModelError:
        return ModelError(f"com.microsoft::{called(self.node)}: {why}")


def _write_binary(kind: str, body: _Body) -> None:
    body.quantize(body.add(kind, [body.floats(0), body.floats(3)]), 6)


def _write_unary(kind: str, names: tuple[str, ...], body: _Body) -> None:
    body.quantize(body.add(kind, [body.floats(0)], **body.kept(*names)), 3)


def _write_pool(kind: str, names: tuple[str, ...], body: _Body) -> None:
    data = body.floats(0)
    if not body.attributes.get(_CHANNELS_LAST):
        body.quantize(body.add(kind, [data], **body.kept(*names)), 3)
        return
    rank = len(body.operands[0].shape(f"input of {called(body.node)}"))
    data = body.add("Transpose", [data], perm=[0, rank - 1, *range(1, rank - 1)])
    pooled = body.add(kind, [data], **body.kept(*names))
    body.quantize(body.add("Transpose", [pooled], perm=[0, *range(2, rank), 1]), 3)


def _write_softmax(body: _Body) -> None:
    rank = len(body.operands[0].shape(f"input of {called(body.node)}"))
    axis = body.attributes.get("axis", -1) % rank
    if body.attributes.get("opset", 13) < _MIN_OPSET and axis != rank - 1:
        raise body.refuse("softmax over several axes is not supported")
    body.quantize(body.add("Softmax", [body.floats(0)], axis=axis), 3)


def _write_concat(body: _Body) -> None:
    parts = [body.floats(at) for at in range(2, len(body.inputs), 3)]
    body.quantize(body.add("Concat", parts, **body.kept("axis")), 0)


def _write_where(body: _Body) -> None:
    body.quantize(body.add("Where", [body.given(0), body.floats(1), body.floats(4)]), 7)


def _write_gemm(body: _Body) -> None:
    flags = body.kept("transA", "transB")
    if body.attributes.get("alpha", 1.0) != 1.0:
        raise body.refuse("alpha other than 1 is not supported")
    columns = 0 if flags.get("transB") else 1
    factors = [body.floats(0), body.floats(3, columns)]
    if body.given(6):
        scale = body.add("Mul", [body.given(1), body.given(4)])
        whole = body.add("Cast", [body.given(6)], to=TensorProto.FLOAT)
        factors.append(body.add("Mul", [whole, scale]))
    if not body.given(7):
        body.end("Gemm", factors, **flags)
        return
    body.quantize(body.add("Gemm", factors, **flags), 7)


def _write_dynamic_matmul(body: _Body) -> None:
    """DynamicQuantizeMatMul: the first operand is floats, made bytes by their range."""
    body.steps.append(
        helper.make_node("DynamicQuantizeLinear", [body.given(0)], ["bytes", "scale", "zero"])
    )
    sums = body.add("MatMulInteger", ["bytes", body.given(1), "zero", body.given(3)])
    _scaled(body, sums, body.add("Mul", ["scale", body.given(2)]), body.given(4))


def _write_matmul_to_float(body: _Body) -> None:
    """MatMulIntegerToFloat: bytes multiplied, and the sums scaled."""
    sums = body.add("MatMulInteger", [body.given(at) for at in (0, 1, 4, 5)])
    _scaled(body, sums, body.add("Mul", [body.given(2), body.given(3)]), body.given(6))


def _scaled(body: _Body, sums: str, scale: str, bias: str) -> None:
    product = [body.add("Cast", [sums], to=TensorProto.FLOAT), scale]
    if bias:
        body.end("Add", [body.add("Mul", product), bias])
    else:
        body.end("Mul", product)


def _write_body(make: Maker, node: Proto, operands: list[Operand], opset: int) -> FunctionProto:
    body = _Body(node, operands, opset)
    if opset < _MIN_OPSET:
        raise body.refuse(f"opset {opset} is too old for it; convert the model to {_MIN_OPSET}")
    make(body)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function("", "", body.inputs, ["y"], body.steps, opsets)


OPERATORS: Final = (
    Operator(
        name="DynamicQuantizeMatMul",
        domain=MICROSOFT,
        body=partial(_write_body, _write_dynamic_matmul),
    ),
    Operator(
        name="MatMulIntegerToFloat",
        domain=MICROSOFT,
        body=partial(_write_body, _write_matmul_to_float),
    ),
    Operator(
        name="QGemm",
        domain=MICROSOFT,
        body=partial(_write_body, _write_gemm),
    ),
    Operator(
        name="QLinearAdd",
        domain=MICROSOFT,
        body=partial(_write_body, partial(_write_binary, "Add")),
    ),
    Operator(
        name="QLinearAveragePool",
        domain=MICROSOFT,
        body=partial(_write_body, partial(_write_pool, "AveragePool", _WINDOW)),
    ),
    Operator(
        name="QLinearConcat",
        domain=MICROSOFT,
        body=partial(_write_body, _write_concat),
    ),
    Operator(
        name="QLinearGlobalAveragePool",
        domain=MICROSOFT,
        body=partial(_write_body, partial(_write_pool, "GlobalAveragePool", ())),
    ),
    Operator(
        name="QLinearLeakyRelu",
        domain=MICROSOFT,
        body=partial(_write_body, partial(_write_unary, "LeakyRelu", ("alpha",))),
    ),
    Operator(
        name="QLinearMul",
        domain=MICROSOFT,
        body=partial(_write_body, partial(_write_binary, "Mul")),
    ),
    Operator(
        name="QLinearSigmoid",
        domain=MICROSOFT,
        body=partial(_write_body, partial(_write_unary, "Sigmoid", ())),
    ),
    Operator(
        name="QLinearSoftmax",
        domain=MICROSOFT,
        body=partial(_write_body, _write_softmax),
    ),
    Operator(
        name="QLinearWhere",
        domain=MICROSOFT,
        body=partial(_write_body, _write_where),
    ),
)
