"""Effects of sliding-window operators on the sizes of an image."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from onnx import NodeProto, TensorProto

from autopipe.compiler.frontends.onnx.reading.tensors import describe_node
from autopipe.errors import ModelError

_Number = TypeVar("_Number", int, float)
_OUTER = 2
"""Number of leading axes that are not spatial: batch and channels."""


def check_window(
    node: NodeProto,
    shapes: Mapping[str, tuple[int, ...]],
    initializers: Mapping[str, TensorProto],  # noqa: ARG001 - as all checks of sizes
    *,
    kernel: int | None = None,
) -> None:
    """Raise ModelError for a window that is larger than its padded input.

    ONNX infers one step for a window of 400 over 241 samples, although there is none: 241 - 400 is
    divided by the stride, and rounded towards 0. `kernel` is the index of the input with the
    window's shape, if no attribute has it.
    """
    attributes = {field.name: field for field in node.attribute}
    has_same_padding = "auto_pad" in attributes and attributes["auto_pad"].s.startswith(b"SAME")
    if has_same_padding or (
        "ceil_mode" in attributes and attributes["ceil_mode"].i
    ):  # a window may exceed the end
        return
    sizes = (shapes.get(node.input[0], ()) if node.input else ())[_OUTER:]
    window = tuple(attributes["kernel_shape"].ints) if "kernel_shape" in attributes else ()
    if not window and kernel is not None:
        window = shapes.get(node.input[kernel], ())[_OUTER:]
    steps = attributes["dilations"].ints if "dilations" in attributes else [1] * len(window)
    pads = attributes["pads"].ints if "pads" in attributes else [0] * 2 * len(window)
    if not len(sizes) == len(window) == len(steps) == len(pads) // 2:
        return
    for axis, size in enumerate(sizes):
        reach = (window[axis] - 1) * steps[axis] + 1
        padded_size = size + pads[axis] + pads[axis + len(sizes)]
        if reach > padded_size:
            raise ModelError(f"{describe_node(node)} has a window of {reach} over {padded_size}")


def divide_by_stride(
    node: NodeProto,
    initializers: Mapping[str, TensorProto],  # noqa: ARG001
    side: int,
) -> Fraction:
    """Return the factor by which a strided window reduces a side of an image."""
    return Fraction(max(1, read_side(_read_strides(node), side)))


def multiply_by_stride(
    node: NodeProto,
    initializers: Mapping[str, TensorProto],  # noqa: ARG001
    side: int,
) -> Fraction:
    """Return the factor of a transposed convolution, at most 1: it enlarges the image."""
    return Fraction(1, max(1, read_side(_read_strides(node), side)))


def read_side(values: Sequence[_Number], side: int) -> _Number | int:
    """Return a list's value for a side; 0 for an empty list."""
    return values[min(side, len(values) - 1)] if values else 0


def _read_strides(node: NodeProto) -> list[int]:
    return next((list(field.ints) for field in node.attribute if field.name == "strides"), [1])
