"""Convolutions, and Col2Im."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Final

from onnx import NodeProto
from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import (
    check_window,
    divide_by_stride,
    multiply_by_stride,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.windows import settle_pads
from autopipe.compiler.frontends.onnx.operator import Operator, Shape
from autopipe.compiler.frontends.onnx.reading.tensors import read_attributes
from autopipe.errors import ModelError


def convert_conv_transpose(site: NodeSite) -> Expr:
    """Convert ConvTranspose that supports `output_shape`."""
    attr = site.attr
    if "output_shape" in attr:
        attr = _with_pads(attr, [int(dim) for dim in site.inputs[0].ty.shape.values[2:]],
                          [int(dim) for dim in site.inputs[1].ty.shape.values[2:]])  # fmt: skip
    return site.convert_by_tvm(attr=attr)


def _with_pads(attr: Attributes, sizes: list[int], window: list[int]) -> Attributes:
    """Replace `output_shape` and `auto_pad` by the explicit pads that give that shape."""
    rank = len(sizes)
    output_sizes = list(attr["output_shape"])[-rank:]
    ones, output_padding = [1] * rank, list(attr.get("output_padding", [0] * rank))
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    begin, end = [], []
    for axis in range(rank):
        reach = (window[axis] - 1) * dilations[axis] + 1
        total = (
            strides[axis] * (sizes[axis] - 1) + output_padding[axis] + reach - output_sizes[axis]
        )
        if total < 0:
            output_padding[axis], total = output_padding[axis] - total, 0
        half = total // 2
        less_first = attr.get("auto_pad") == b"SAME_UPPER"
        begin.append(half if less_first else total - half)
        end.append(total - begin[-1])
    other_attributes = {
        name: value for name, value in attr.items() if name not in ("auto_pad", "output_shape")
    }
    return {**other_attributes, "pads": begin + end, "output_padding": output_padding}


def _count_products(node: NodeProto, slot: int, shape: Shape) -> int:  # noqa: ARG001
    """Count the kernel elements of one output: [outputs, inputs of a group, window...].

    The kernel of a transposed convolution is [inputs, outputs of a group, window...].
    """
    if node.op_type == "Conv":
        return math.prod(shape[1:])
    return shape[0] // read_attributes(node).get("group", 1) * math.prod(shape[2:])


def convert_deform_conv(site: NodeSite) -> Expr:
    """Convert DeformConv as a bilinear sampling of all taps, followed by a matrix product."""
    bb = site.bb
    label = site.label
    data, weight, offset = site.inputs[:3]
    bias, mask = site.find_input(3), site.find_input(4)
    if data.ty.ndim != 4:  # noqa: PLR2004
        raise ModelError(f"{label} is of {data.ty.ndim - 2} dimensions; 2 are supported")
    batch, channels, *_ = operand_facts.require_shape(data, label)
    outputs, _, *window = operand_facts.require_shape(weight, label)
    places = operand_facts.require_shape(offset, label)[2:]
    groups = int(site.attr.get("group", 1))
    samples: Expr = bb.emit_te(
        _make_sampler(site.attr, window), data, offset, *[mask] * (mask is not None),
        primfunc_name_hint="deformed",
    )  # fmt: skip
    rows = channels // groups * math.prod(window)
    samples = relax.op.reshape(samples, [batch, groups, rows, math.prod(places)])
    factor = relax.op.reshape(weight, [groups, outputs // groups, rows])
    product = relax.op.reshape(relax.op.matmul(factor, samples), [batch, outputs, *places])
    return product if bias is None else product + relax.op.reshape(bias, [1, outputs, 1, 1])


def _make_sampler(attr: Attributes, window: list[int]) -> Callable[..., te.Tensor]:
    """Build the tensor expression that samples an image bilinearly, with 0 outside of it."""
    strides, dilations = (attr.get(key, [1, 1]) for key in ("strides", "dilations"))
    pads, groups = attr.get("pads", [0] * 4), int(attr.get("offset_group", 1))
    taps = math.prod(window)

    def sample(data: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        batch, channels, *extents = (int(extent) for extent in data.shape)
        places = [int(extent) for extent in offset.shape[2:]]
        zero = tirx.const(0, data.dtype)

        def at(n: Expr, c: Expr, tap: Expr, y: Expr, x: Expr) -> Expr:
            group = tirx.floordiv(c, channels // groups) * taps + tap
            steps = (tirx.floordiv(tap, window[1]), tirx.floormod(tap, window[1]))
            corners, parts = [], []
            for i, place in enumerate((y, x)):
                start = place * strides[i] - pads[i] + steps[i] * dilations[i]
                real = start.astype(data.dtype) + offset[n, group * 2 + i, y, x]
                real = tirx.max(tirx.min(real, tirx.const(extents[i] + 1, data.dtype)), -2.0)
                low = tirx.floor(real)
                corners.append(low.astype("int32"))
                parts.append(real - low)
            total = zero
            for dy, dx in itertools.product((0, 1), (0, 1)):
                row, column = corners[0] + dy, corners[1] + dx
                inside = tirx.all(row >= 0, row < extents[0], column >= 0, column < extents[1])
                value = tirx.if_then_else(inside, data[n, c, row, column], zero)
                share = (parts[0] if dy else 1 - parts[0]) * (parts[1] if dx else 1 - parts[1])
                total = total + value * share
            return total * mask[0][n, group, y, x] if mask else total

        return te.compute((batch, channels, taps, *places), at, name="deformed")

    return sample


def convert_col2_im(site: NodeSite) -> Expr:
    """Convert Col2Im: sum the columns of blocks into an image."""
    label = f"of {site.label}"
    image, block = (site.require_values(at, f"input {at} {label}").tolist() for at in (1, 2))
    rank = len(image)
    strides, dilations = (site.attr.get(key, [1] * rank) for key in ("strides", "dilations"))
    pads = site.attr.get("pads", [0] * 2 * rank)
    counts = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    batch, rows, columns = operand_facts.require_shape(site.inputs[0], f"input {label}")
    if columns != math.prod(counts) or rows % math.prod(block):
        raise ModelError(f"the shapes {label} do not fit each other")
    channels = rows // math.prod(block)

    def sum_blocks(data: te.Tensor) -> te.Tensor:
        offsets = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(block)]

        def at(*index: Expr) -> Expr:
            row, column, conditions = index[1], tirx.const(0, "int32"), []
            for i, offset in enumerate(offsets):
                place = index[2 + i] + pads[i] - offset * dilations[i]
                number = tirx.floordiv(place, strides[i])
                conditions += [number * strides[i] == place, number >= 0, number < counts[i]]
                row, column = row * block[i] + offset, column * counts[i] + number
            value = tirx.if_then_else(
                tirx.all(*conditions), data[index[0], row, column], tirx.const(0, data.dtype)
            )
            return te.sum(value, axis=offsets)

        return te.compute((batch, channels, *image), at, name="col2im")

    return site.bb.emit_te(sum_blocks, site.inputs[0], primfunc_name_hint="col2im")


OPERATORS: Final = (
    Operator(
        name="Conv",
        since=22,
        convert_dynamic=settle_pads,
        check_sizes=partial(check_window, kernel=1),
        size_factor=divide_by_stride,
        count_products=_count_products,
        weights={1: "kernel", 2: "shift"},
    ),
    Operator(
        name="ConvTranspose",
        since=22,
        converter=convert_conv_transpose,
        size_factor=multiply_by_stride,
        count_products=_count_products,
        weights={1: "kernel", 2: "shift"},
    ),
    Operator(name="DeformConv", since=22, converter=convert_deform_conv),
    Operator(name="Col2Im", since=18, converter=convert_col2_im),
)
