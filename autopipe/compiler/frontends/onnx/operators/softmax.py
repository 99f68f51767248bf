"""Softmax, LogSoftmax and Hardmax."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_integer,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG001  TVM's converters have one signature


def convert_dynamic_hardmax(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Hardmax along a dynamic axis."""
    data = inputs[0]
    sizes = extents.shape(data, describe_node("Hardmax", attr))
    axis = int(attr.get("axis", -1)) % len(sizes)
    if not is_open(sizes[axis : axis + 1]):
        return None
    largest = bb.emit(relax.op.argmax(data, axis, keepdims=True))
    places = bb.emit(relax.op.arange(as_integer(0), as_int64(sizes[axis]), as_integer(1), "int64"))
    shape = [size if at == axis else 1 for at, size in enumerate(sizes)]
    places = bb.emit(relax.op.reshape(places, to_shape(shape)))
    return relax.op.astype(bb.emit(relax.op.equal(places, largest)), data.ty.dtype)


OPERATORS: Final = (
    Operator(
        name="Hardmax",
        since=13,
        converter=onnx_frontend.Hardmax,
        convert_dynamic=convert_dynamic_hardmax,
    ),
    Operator(
        name="LogSoftmax",
        since=13,
        converter=onnx_frontend.LogSoftmax,
        traits=Trait.SINGULAR_AT_ZERO,
    ),
    Operator(
        name="Softmax",
        since=13,
        converter=onnx_frontend.Softmax,
        row_moments=rules.softmax,
        saturation_slope=1.0,
    ),
)
