"""Operators of onnxruntime on quantized tensors."""

from collections.abc import Callable
from functools import partial
from typing import Final

from onnx import TensorProto, helper

from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import describe_node
from autopipe.compiler.frontends.onnx.rewriting.body_writer import BodyWriter, write_body

_ONE_AXIS: Final = 13
"""The first opset in which Softmax is over one axis."""
_CHANNELS_LAST: Final = "channels_last"
_UNARY: Final = ("X", "X_scale", "", "Y_scale")
_BINARY: Final = ("A", "A_scale", "", "B", "B_scale", "", "C_scale")
"""Inputs of operators on one tensor and on two; zero points are optional."""
_WINDOW: Final = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def _write_binary(kind: str, body: BodyWriter) -> None:
    body.end_quantized(body.add(kind, [body.add_floats(0), body.add_floats(3)]), 6)


def _write_unary(kind: str, names: tuple[str, ...], body: BodyWriter) -> None:
    body.end_quantized(body.add(kind, [body.add_floats(0)], **body.pick_attributes(*names)), 3)


def _write_pool(kind: str, names: tuple[str, ...], body: BodyWriter) -> None:
    data = body.add_floats(0)
    if not body.attributes.get(_CHANNELS_LAST):
        body.end_quantized(body.add(kind, [data], **body.pick_attributes(*names)), 3)
        return
    rank = len(body.operands[0].shape(f"input of {describe_node(body.node)}"))
    data = body.add("Transpose", [data], perm=[0, rank - 1, *range(1, rank - 1)])
    pool_output = body.add(kind, [data], **body.pick_attributes(*names))
    body.end_quantized(body.add("Transpose", [pool_output], perm=[0, *range(2, rank), 1]), 3)


def _write_softmax(body: BodyWriter) -> None:
    rank = len(body.operands[0].shape(f"input of {describe_node(body.node)}"))
    axis = body.attributes.get("axis", -1) % rank
    if body.attributes.get("opset", 13) < _ONE_AXIS and axis != rank - 1:
        raise body.refuse("softmax over several axes is not supported")
    body.end_quantized(body.add("Softmax", [body.add_floats(0)], axis=axis), 3)


def _write_concat(body: BodyWriter) -> None:
    parts = [body.add_floats(at) for at in range(2, len(body.inputs), 3)]
    body.end_quantized(body.add("Concat", parts, **body.pick_attributes("axis")), 0)


def _write_where(body: BodyWriter) -> None:
    body.end_quantized(
        body.add("Where", [body.name_input(0), body.add_floats(1), body.add_floats(4)]), 7
    )


def _write_gemm(body: BodyWriter) -> None:
    flags = body.pick_attributes("transA", "transB")
    if body.attributes.get("alpha", 1.0) != 1.0:
        raise body.refuse("alpha other than 1 is not supported")
    columns = 0 if flags.get("transB") else 1
    factors = [body.add_floats(0), body.add_floats(3, columns)]
    if body.name_input(6):
        scale = body.add("Mul", [body.name_input(1), body.name_input(4)])
        float_bias = body.add("Cast", [body.name_input(6)], to=TensorProto.FLOAT)
        factors.append(body.add("Mul", [float_bias, scale]))
    if not body.name_input(7):
        body.end("Gemm", factors, **flags)
        return
    body.end_quantized(body.add("Gemm", factors, **flags), 7)


def _write_dynamic_matmul(body: BodyWriter) -> None:
    """DynamicQuantizeMatMul: the first operand is float32, quantized to uint8 by its range."""
    body.steps.append(
        helper.make_node("DynamicQuantizeLinear", [body.name_input(0)], ["bytes", "scale", "zero"])
    )
    sums = body.add("MatMulInteger", ["bytes", body.name_input(1), "zero", body.name_input(3)])
    _write_scaled_end(
        body, sums, body.add("Mul", ["scale", body.name_input(2)]), body.name_input(4)
    )


def _write_matmul_to_float(body: BodyWriter) -> None:
    """MatMulIntegerToFloat: an int8 product and scaled sums."""
    sums = body.add("MatMulInteger", [body.name_input(at) for at in (0, 1, 4, 5)])
    _write_scaled_end(
        body, sums, body.add("Mul", [body.name_input(2), body.name_input(3)]), body.name_input(6)
    )


def _write_scaled_end(body: BodyWriter, sums: str, scale: str, bias: str) -> None:
    product = [body.add("Cast", [sums], to=TensorProto.FLOAT), scale]
    if bias:
        body.end("Add", [body.add("Mul", product), bias])
    else:
        body.end("Mul", product)


def _make_operator(name: str, inputs: tuple[str, ...], write: Callable[..., None]) -> Operator:
    return Operator(
        name=name, domain=MICROSOFT, inputs=inputs, body=partial(write_body, write),
        traits=Trait.ROUNDS_TO_STEPS,
    )  # fmt: skip


OPERATORS: Final = (
    Operator(
        name="MatMulIntegerToFloat",
        domain=MICROSOFT,
        inputs=("A", "B", "a_scale", "b_scale"),
        body=partial(write_body, _write_matmul_to_float),
    ),
    _make_operator("DynamicQuantizeMatMul", ("A", "B", "b_scale"), _write_dynamic_matmul),
    _make_operator("QGemm", ("A", "a_scale", "", "B", "b_scale"), _write_gemm),
    _make_operator("QLinearAdd", _BINARY, partial(_write_binary, "Add")),
    _make_operator("QLinearAveragePool", _UNARY, partial(_write_pool, "AveragePool", _WINDOW)),
    _make_operator("QLinearConcat", ("Y_scale", "", "X", "X_scale"), _write_concat),
    _make_operator(
        "QLinearGlobalAveragePool", _UNARY, partial(_write_pool, "GlobalAveragePool", ())
    ),
    _make_operator("QLinearLeakyRelu", _UNARY, partial(_write_unary, "LeakyRelu", ("alpha",))),
    _make_operator("QLinearMul", _BINARY, partial(_write_binary, "Mul")),
    _make_operator("QLinearSigmoid", _UNARY, partial(_write_unary, "Sigmoid", ())),
    _make_operator("QLinearSoftmax", _UNARY, _write_softmax),
    _make_operator(
        "QLinearWhere",
        ("condition", "X", "x_scale", "", "Y", "y_scale", "", "z_scale"),
        _write_where,
    ),
)
