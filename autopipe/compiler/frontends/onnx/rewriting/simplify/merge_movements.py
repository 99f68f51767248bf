"""Merge adjacent nodes that only move data.

Transpose of a Transpose     one Transpose
Transpose of [2, 1, 3] by [1, 0, 2]    Reshape
Reshape of a Reshape         the second
Unsqueeze of an Unsqueeze    one Unsqueeze
Conv of a Pad with zeros     Conv with larger pads
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from onnx import NodeProto, helper

from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import (
    STANDARD,
    GraphView,
    find_attribute,
    name_operand,
)

_AXES_ARE_INPUTS: Final = 13
"""The first opset in which the axes of Unsqueeze are an input."""


def merge_movements(view: GraphView) -> bool:
    """Merge such nodes with their producers; returns whether there were any.

    A producer with other readers stays for those.
    """
    changed = False
    for node in view.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is not None and node.domain in STANDARD:
            changed |= rule(view, node)
    if changed:
        view.index_nodes()
    return changed


def _merge_transpose(view: GraphView, node: NodeProto) -> bool:
    order = find_attribute(node, "perm")
    if order is None:
        return False
    inner = view.find_producer(node.input[0], "Transpose")
    first = None if inner is None else find_attribute(inner, "perm")
    if inner is not None and first is not None:
        node.input[0] = inner.input[0]
        order.ints[:] = [first.ints[axis] for axis in order.ints]
        return True
    return _as_reshape(view, node, list(order.ints))


def _as_reshape(view: GraphView, node: NodeProto, order: list[int]) -> bool:
    """Replace a Transpose that only moves axes of size 1 by a Reshape."""
    sizes = view.type_of(node.input[0]).sizes
    if sizes is None or len(sizes) != len(order) or 0 in sizes:
        return False
    nontrivial_axes = [axis for axis in order if sizes[axis] != 1]
    shape = [size if isinstance(size, int) else -1 for size in (sizes[axis] for axis in order)]
    if nontrivial_axes != sorted(nontrivial_axes) or shape.count(-1) > 1:
        return False
    target = view.store(np.array(shape, np.int64), f"{node.output[0]}/shape")
    reshape = helper.make_node("Reshape", [node.input[0], target], node.output, name=node.name)
    node.CopyFrom(reshape)
    return True


def _merge_reshape(view: GraphView, node: NodeProto) -> bool:
    """Skip the first of two Reshapes; not if a 0 in the second shape copies one of its sizes."""
    inner = view.find_producer(node.input[0], "Reshape")
    shape = view.find_constant(node.input[1])
    if inner is None or shape is None or (shape == 0).any():
        return False
    node.input[0] = inner.input[0]
    return True


def _merge_unsqueeze(view: GraphView, node: NodeProto) -> bool:
    inner = view.find_producer(node.input[0], "Unsqueeze")
    rank = None if inner is None else view.type_of(inner.input[0]).rank
    if inner is None or rank is None:
        return False
    axes = [_read_axes(view, each) for each in (inner, node)]
    if axes[0] is None or axes[1] is None:
        return False
    first = {axis % (rank + len(axes[0])) for axis in axes[0]}
    second = {axis % (rank + len(axes[0]) + len(axes[1])) for axis in axes[1]}
    outer_axes = [axis for axis in range(rank + len(first) + len(second)) if axis not in second]
    merged_axes = sorted(second | {outer_axes[axis] for axis in first})
    node.input[0] = inner.input[0]
    if view.opset >= _AXES_ARE_INPUTS:
        node.input[1] = view.store(np.array(merged_axes, np.int64), f"{node.output[0]}/axes")
    else:
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("axes", merged_axes))
    return True


def _read_axes(view: GraphView, node: NodeProto) -> list[int] | None:
    attribute = find_attribute(node, "axes")
    if attribute is not None:
        return list(attribute.ints)
    axes = view.find_constant(name_operand(node, 1))
    return None if axes is None else [int(axis) for axis in axes.reshape(-1)]


def _merge_pad(view: GraphView, node: NodeProto) -> bool:
    """Fold a zero Pad of spatial axes into the pads of the following convolution."""
    inner = view.find_producer(node.input[0], "Pad")
    weight = view.type_of(node.input[1])
    auto = find_attribute(node, "auto_pad")
    if inner is None or weight.rank is None or not _is_zero(view, inner):
        return False
    pads = _read_pads(view, inner, weight.rank)
    if (auto is not None and auto.s not in {b"NOTSET", b"VALID"}) or pads is None:
        return False
    if pads.min() < 0 or pads[:, :2].any():
        return False
    before = find_attribute(node, "pads")
    conv_pads = np.zeros_like(pads[:, 2:]) if before is None else np.reshape(before.ints, (2, -1))
    other_attributes = [each for each in node.attribute if each.name not in {"auto_pad", "pads"}]
    convolution = helper.make_node(
        "Conv", [inner.input[0], *node.input[1:]], node.output, name=node.name,
        pads=(conv_pads + pads[:, 2:]).reshape(-1).tolist(),
    )  # fmt: skip
    convolution.attribute.extend(other_attributes)
    node.CopyFrom(convolution)
    return True


def _is_zero(view: GraphView, node: NodeProto) -> bool:
    """Whether a Pad pads with zeros."""
    mode, number = find_attribute(node, "mode"), find_attribute(node, "value")
    if mode is not None and mode.s != b"constant":
        return False
    if name_operand(node, 2):
        fill = view.find_constant(node.input[2])
        return fill is not None and not fill.any()
    return number is None or number.f == 0


def _read_pads(
    view: GraphView, node: NodeProto, rank: int
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]] | None":
    """Return the pads [2, rank] before and after each axis; None if they are computed."""
    attribute = find_attribute(node, "pads")
    pads = (
        view.find_constant(name_operand(node, 1)) if attribute is None else np.array(attribute.ints)
    )
    axes = view.find_constant(name_operand(node, 3)) if name_operand(node, 3) else np.arange(rank)
    if pads is None or axes is None or pads.size != 2 * axes.size:
        return None
    widths = np.zeros((2, rank), np.int64)
    for index, axis in enumerate(axes.reshape(-1)):
        widths[:, axis] = pads.reshape(2, -1)[:, index]
    return widths


_RULES: Final[Mapping[str, Callable[[GraphView, NodeProto], bool]]] = {
    "Conv": _merge_pad,
    "Reshape": _merge_reshape,
    "Transpose": _merge_transpose,
    "Unsqueeze": _merge_unsqueeze,
}
