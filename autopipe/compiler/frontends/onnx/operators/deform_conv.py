"""DeformConv: a convolution with taps displaced by computed offsets."""

import itertools
import math
from collections.abc import Callable
from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError


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
    samples = bb.normalize(relax.op.reshape(samples, [batch, groups, rows, math.prod(places)]))
    factor = bb.normalize(relax.op.reshape(weight, [groups, outputs // groups, rows]))
    product = bb.normalize(relax.op.matmul(factor, samples))
    product = bb.normalize(relax.op.reshape(product, [batch, outputs, *places]))
    if bias is None:
        return product
    bias = bb.normalize(relax.op.reshape(bias, [1, outputs, 1, 1]))
    return bb.normalize(relax.op.add(product, bias))


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


OPERATORS: Final = (Operator(name="DeformConv", since=22, converter=convert_deform_conv),)
