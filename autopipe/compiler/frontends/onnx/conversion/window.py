"""What operators that work on windows do to the sizes of an image."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from onnx import NodeProto, TensorProto

from autopipe.compiler.frontends.onnx.reading.tensors import describe_node
from autopipe.errors import ModelError

_Number = TypeVar("_Number", int, float)
_OUTER = 2
"""Batch and channels, which are no axes of the window."""


def check_window(
    node: NodeProto,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, TensorProto],  # noqa: ARG001 - as all checks of sizes
    *,
    kernel: int | None = None,
) -> None:
    """Refuse a window that is larger than what it is laid over.

    ONNX infers one step for a window of 400 over 241 samples, where there is none: 241 - 400 is
    divided by the stride, and rounded towards 0. `kernel` is the input that has the shape of the
    window, where no attribute has it. Raises ModelError.
    """
    said = {field.name: field for field in node.attribute}
    same = "auto_pad" in said and said["auto_pad"].s.startswith(b"SAME")
    if same or ("ceil_mode" in said and said["ceil_mode"].i):  # a window may hang over the end
        return
    sizes = (shapes.get(node.input[0], ()) if node.input else ())[_OUTER:]
    window = tuple(said["kernel_shape"].ints) if "kernel_shape" in said else ()
    if not window and kernel is not None:
        window = shapes.get(node.input[kernel], ())[_OUTER:]
    steps = said["dilations"].ints if "dilations" in said else [1] * len(window)
    pads = said["pads"].ints if "pads" in said else [0] * 2 * len(window)
    if not len(sizes) == len(window) == len(steps) == len(pads) // 2:
        return
    for axis, size in enumerate(sizes):
        reach = (window[axis] - 1) * steps[axis] + 1
        padded = size + pads[axis] + pads[axis + len(sizes)]
        if reach > padded:
            raise ModelError(f"{describe_node(node)} has a window of {reach} over {padded}")


def divide_by_stride(node: NodeProto, stored: Mapping[str, TensorProto], side: int) -> Fraction:  # noqa: ARG001
    """Return by how much a strided window makes a side of an image smaller."""
    return Fraction(max(1, read_side(_read_strides(node), side)))


def multiply_by_stride(node: NodeProto, stored: Mapping[str, TensorProto], side: int) -> Fraction:  # noqa: ARG001
    """Return the same of a transposed convolution, which makes it larger."""
    return Fraction(1, max(1, read_side(_read_strides(node), side)))


def read_side(values: Sequence[_Number], side: int) -> _Number | int:
    """Return what a list says of a side; 0 where it says nothing."""
    return values[min(side, len(values) - 1)] if values else 0


def _read_strides(node: NodeProto) -> list[int]:
    return next((list(field.ints) for field in node.attribute if field.name == "strides"), [1])
