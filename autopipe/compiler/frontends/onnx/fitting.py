"""Tells where windows and reflections are larger than what they are laid over.

ONNX infers one step for a window of 400 over 241 samples, where there is none: 241 - 400 is
divided by the stride, and rounded towards 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnx import numpy_helper

from autopipe.compiler.frontends.onnx.tensors import Proto
from autopipe.errors import ModelError

_WINDOWS: Final = {"Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"}
_KERNEL: Final = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Which input has the shape of the window, where no attribute has it."""

Shape = tuple[int, ...]


def check(graph: Proto, shapes: Mapping[str, Shape]) -> None:
    """Raise ModelError for a node that has no place on its input; `shapes` are all static ones."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        shape = shapes.get(node.input[0], ()) if node.input else ()
        said = {field.name: field for field in node.attribute}
        if node.op_type in _WINDOWS:
            _check_window(node, said, shape[2:], shapes)
        elif node.op_type == "Pad" and said.keys() >= {"mode"} and said["mode"].s == b"reflect":
            _check_reflection(node, shape, stored)


def _check_window(
    node: Proto, said: Mapping[str, Any], sizes: Shape, shapes: Mapping[str, Shape]
) -> None:
    same = "auto_pad" in said and said["auto_pad"].s.startswith(b"SAME")
    if same or ("ceil_mode" in said and said["ceil_mode"].i):  # a window may hang over the end
        return
    place = _KERNEL.get(node.op_type)
    kernel = tuple(said["kernel_shape"].ints) if "kernel_shape" in said else ()
    if not kernel and place is not None:
        kernel = shapes.get(node.input[place], ())[2:]
    steps = said["dilations"].ints if "dilations" in said else [1] * len(kernel)
    pads = said["pads"].ints if "pads" in said else [0] * 2 * len(kernel)
    if not len(sizes) == len(kernel) == len(steps) == len(pads) // 2:
        return
    for axis, size in enumerate(sizes):
        window = (kernel[axis] - 1) * steps[axis] + 1
        padded = size + pads[axis] + pads[axis + len(sizes)]
        if window > padded:
            raise ModelError(f"{_named(node)} has a window of {window} over {padded}")


def _check_reflection(node: Proto, shape: Shape, stored: Mapping[str, Proto]) -> None:
    """A border of 120 takes 121 samples: the first one is not repeated."""
    pads: Sequence[int] = []  # pads may be computed, and axes may be named
    if node.input[1:2] and node.input[1] in stored and not any(node.input[3:]):
        pads = numpy_helper.to_array(stored[node.input[1]]).tolist()
    for size, *borders in zip(shape, pads[: len(shape)], pads[len(shape) :], strict=False):
        if max(borders) >= size:
            raise ModelError(f"{_named(node)} reflects {max(borders)} of {size}")


def _named(node: Proto) -> str:
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"
