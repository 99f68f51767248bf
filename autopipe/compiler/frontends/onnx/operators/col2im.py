"""Col2Im: an image as the sum of overlapping blocks."""

import math
from typing import Final

from tvm import te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError


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


OPERATORS: Final = (Operator(name="Col2Im", since=18, converter=convert_col2_im),)
