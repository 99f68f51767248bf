"""Effects of sliding-window operators on the sizes of an image."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, TypeVar

from onnx import NodeProto, TensorProto

from autopipe.compiler.frontends.onnx.reading.tensors import describe_node, read_attributes
from autopipe.errors import ModelError

_Number = TypeVar("_Number", int, float)
OUTER: Final = 2
"""Number of leading axes that are not spatial: batch and channels."""


def check_window(
    node: NodeProto,
    shapes: Mapping[str, tuple[int, ...]],
    initializers: Mapping[str, TensorProto],  # noqa: ARG001
    *,
    kernel: int | None = None,
) -> None:
    """Raise ModelError for a window that is larger than its padded input.

    ONNX infers one step for a window of 400 over 241 samples, although there is none: 241 - 400 is
    divided by the stride, and rounded towards 0. `kernel` is the index of the input with the
    window's shape, if no attribute has it.
    """
    attributes = read_attributes(node)
    if attributes.get("auto_pad", b"").startswith(b"SAME") or attributes.get("ceil_mode"):
        return  # a window may exceed the end
    sizes = (shapes.get(node.input[0], ()) if node.input else ())[OUTER:]
    window = attributes.get("kernel_shape", ())
    if not window and kernel is not None:
        window = shapes.get(node.input[kernel], ())[OUTER:]
    steps = attributes.get("dilations", [1] * len(window))
    pads = attributes.get("pads", [0] * 2 * len(window))
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
    return read_attributes(node).get("strides", [1])
