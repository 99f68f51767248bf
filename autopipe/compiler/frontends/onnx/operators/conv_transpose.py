"""ConvTranspose."""

from math import prod
from typing import Final

from onnx import NodeProto
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import multiply_by_stride
from autopipe.compiler.frontends.onnx.operator import Operator, Shape
from autopipe.compiler.frontends.onnx.reading.tensors import read_attributes


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
    """Count the products of one output: kernel [inputs, outputs of a group, window...]."""
    groups = read_attributes(node).get("group", 1)
    return shape[0] // groups * prod(shape[2:])


OPERATORS: Final = (
    Operator(
        name="ConvTranspose",
        since=22,
        converter=convert_conv_transpose,
        size_factor=multiply_by_stride,
        count_products=_count_products,
        weights={1: "kernel", 2: "shift"},
    ),
)
