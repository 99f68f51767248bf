"""Int8 and uint8 products with zero points."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import check_window, divide_by_stride
from autopipe.compiler.frontends.onnx.dynamic_sizes.windows import list_pads, settle_pads
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

_SHIFT: Final = {"uint8": 0, "int8": 128}
"""The offset that maps a dtype to uint8."""
_GROUP: Final = 4
"""Products in a dot-product instruction; the operands are padded to a multiple."""
_LAYOUTS: Final = {3: ("conv1d", "NCW", "OIW"), 4: ("conv2d", "NCHW", "OIHW"),
                   5: ("conv3d", "NCDHW", "OIDHW")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Bytes:
    """An int8 or uint8 operand and its zero point."""

    values: Expr
    zero: Expr | None
    """An int32 tensor; None where it is known to be 0."""

    @property
    def shape(self) -> list[int]:
        """Return the sizes, -1 for a dynamic dimension."""
        return operand_facts.read_extents(self.values.ty, "an operand of bytes")


def convert_mat_mul_integer(site: NodeSite) -> Expr:
    """Convert MatMulInteger: a matrix product of int8 or uint8 with int32 sums."""
    bb = site.bb
    if min(each.ty.ndim for each in site.inputs[:2]) == 1:
        return site.convert_by(onnx_frontend.MatMulInteger)
    points = [site.find_input(at) for at in (2, 3)]
    if points[0] is not None and points[0].ty.ndim == 1:  # one for each row
        points[0] = bb.normalize(relax.op.expand_dims(points[0], -1))
    left = _make_operand(bb, site.inputs[0], points[0], "uint8")
    right = _make_operand(bb, site.inputs[1], points[1], "int8")
    depth = left.shape[-1]
    if depth < 0:
        raise ModelError(f"{site.label} sums over an axis of a dynamic size")
    short = (0, -depth % _GROUP)
    sums = relax.op.matmul(
        _pad_operand(bb, replace(left, zero=None), {len(left.shape) - 1: short}),
        _pad_operand(bb, replace(right, zero=None), {len(right.shape) - 2: short}),
        out_dtype="int32",
    )
    terms = (_sum_axes(bb, left.values, -1), _sum_axes(bb, right.values, -2), depth)
    return _correct_zero_points(bb, sums, (left.zero, right.zero), terms)


def convert_conv_integer(site: NodeSite) -> Expr:
    """Convert ConvInteger: a convolution of int8 or uint8 with int32 sums."""
    bb = site.bb
    points = [site.find_input(at) for at in (2, 3)]
    data = _make_operand(bb, site.inputs[0], points[0], "uint8")
    kernel = _make_operand(bb, site.inputs[1], points[1], "int8")
    groups, (channels, *window) = int(site.attr.get("group", 1)), kernel.shape[1:]
    short = (0, -channels % _GROUP if groups == 1 else 0)
    flat_pads = list_pads(site, data.shape[2:], window)
    pads = list(zip(flat_pads[: len(window)], flat_pads[len(window) :], strict=True))
    around: Mapping[int, tuple[int, int]] = {}
    if data.zero is not None:  # a convolution pads with zeros
        around, pads = dict(enumerate(pads, 2)), [(0, 0)] * len(pads)
    image = _pad_operand(bb, data, {1: short, **around})
    steps = {
        "strides": site.attr.get("strides", 1), "dilation": site.attr.get("dilations", 1),
        "padding": [side for sides in zip(*pads, strict=True) for side in sides],
    }  # fmt: skip
    convolve = partial(_convolve_bytes, bb, image, steps)
    sums = convolve(_pad_operand(bb, replace(kernel, zero=None), {1: short}), groups)
    per_channel = [-1] + [1] * len(window)
    zero = kernel.zero
    kernel_sums = relax.op.reshape(
        _sum_axes(bb, kernel.values, *range(1, 2 + len(window))), per_channel
    )
    window_sums = None
    if zero is not None:
        zero = relax.op.reshape(zero, per_channel)
        ones = np.zeros((groups, channels + short[1], *window), "int8")
        ones[:, :channels] = 1
        window_sums = convolve(operand_facts.make_constant(ones), groups)
        window_sums = relax.op.repeat(window_sums, kernel.shape[0] // groups, 1)
    terms = (window_sums, kernel_sums, channels * math.prod(window))
    return _correct_zero_points(bb, sums, (data.zero, zero), terms)


def make_signed(bb: BlockBuilder, values: Expr, zero: Expr | None) -> _Bytes:
    """Convert an operand to int8, shifting its zero point alike."""
    return _make_operand(bb, values, zero, "int8")


def _make_operand(bb: BlockBuilder, values: Expr, zero: Expr | None, target_dtype: str) -> _Bytes:
    """Convert an operand to int8 or uint8, shifting its zero point alike."""
    dtype = str(values.ty.dtype)
    shift = _SHIFT[dtype] - _SHIFT[target_dtype]
    if shift:
        wide = relax.op.astype(values, "int16") + relax.const(shift, "int16")
        values = bb.normalize(relax.op.astype(wide, target_dtype))
    if zero is None or isinstance(zero, GenericConst):
        points = np.int32(0) if zero is None else zero.value.numpy().astype("int32")
        points = points + np.int32(shift)
        return _Bytes(
            values, operand_facts.make_constant(np.asarray(points)) if points.any() else None
        )
    zero = relax.op.astype(zero, "int32")
    return _Bytes(values, bb.normalize(relax.op.add(zero, relax.const(shift, "int32"))))


def _pad_operand(bb: BlockBuilder, operand: _Bytes, widths: Mapping[int, tuple[int, int]]) -> Expr:
    """Pad an operand by its zero point, with widths before and after each axis."""
    width = [side for axis in range(len(operand.shape)) for side in widths.get(axis, (0, 0))]
    values, zero = operand.values, operand.zero
    if not any(width):
        return values
    if zero is None or isinstance(zero, GenericConst):
        value = 0.0 if zero is None else float(zero.value.numpy().item())
        return bb.normalize(relax.op.nn.pad(values, width, pad_value=value))
    # TVM pads with constants only
    zero = bb.normalize(relax.op.astype(zero, "int16"))
    centered_values = relax.op.subtract(relax.op.astype(values, "int16"), zero)
    padded_values = relax.op.nn.pad(bb.normalize(centered_values), width)
    return bb.normalize(relax.op.astype(padded_values + zero, str(values.ty.dtype)))


def _correct_zero_points(
    bb: BlockBuilder,
    sums: Expr,
    zeros: tuple[Expr | None, Expr | None],
    terms: tuple[Expr | None, Expr, int],
) -> Expr:
    """Correct int32 sums for the zero points of both operands; `terms` are (left, right, depth)."""
    (left, right), (of_left, of_right, depth) = zeros, terms
    if right is not None:
        sums = relax.op.subtract(sums, relax.op.multiply(of_left, right))
        of_right -= right * relax.const(depth, "int32")
    if left is not None:
        sums -= of_right * left
    return bb.normalize(sums)


def _convolve_bytes(
    bb: BlockBuilder, image: Expr, steps: Mapping[str, Any], kernel: Expr, groups: int
) -> Expr:
    """Emit an int32 convolution; `steps` has strides, dilation and padding for Relax."""
    name, data_layout, kernel_layout = _LAYOUTS[image.ty.ndim]
    convolution = getattr(relax.op.nn, name)(
        image,
        kernel,
        **steps,
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_dtype="int32",
    )
    return bb.normalize(convolution)


def _sum_axes(bb: BlockBuilder, values: Expr, *axes: int) -> Expr:
    return bb.normalize(relax.op.sum(relax.op.astype(values, "int32"), list(axes), keepdims=True))


OPERATORS: Final = (
    Operator(
        name="ConvInteger",
        since=10,
        converter=convert_conv_integer,
        convert_dynamic=settle_pads,
        check_sizes=partial(check_window, kernel=1),
        size_factor=divide_by_stride,
    ),
    Operator(name="MatMulInteger", since=10, converter=convert_mat_mul_integer),
    Operator(
        name="QLinearConv",
        since=10,
        replaced_by="fuse_quantized",
        check_sizes=partial(check_window, kernel=3),
        size_factor=divide_by_stride,
        traits=Trait.ROUNDS_TO_STEPS,
    ),
    Operator(
        name="QLinearMatMul", since=21, replaced_by="fuse_quantized", traits=Trait.ROUNDS_TO_STEPS
    ),
)
