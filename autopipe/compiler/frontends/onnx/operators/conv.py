"""Conv."""

from functools import partial
from math import prod
from typing import Final

from onnx import NodeProto

from autopipe.compiler.frontends.onnx.conversion.window import check_window, divide_by_stride
from autopipe.compiler.frontends.onnx.dynamic_sizes.windows import settle_pads
from autopipe.compiler.frontends.onnx.operator import Operator, Shape


def _count_products(node: NodeProto, slot: int, shape: Shape) -> int:  # noqa: ARG001
    """Count the kernel elements of one output: [outputs, inputs of a group, window...]."""
    return prod(shape[1:])


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
)
