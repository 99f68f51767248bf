"""Pad and CenterCropPad."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from onnx import NodeProto, TensorProto, numpy_helper
from tvm import relax, te, tirx, topi
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body
from autopipe.compiler.frontends.onnx.reading.tensors import describe_node, read_attributes
from autopipe.errors import ModelError

_BORDERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "edge": (topi.nn.replicate_pad,),
    "reflect": (topi.nn.mirror_pad, "REFLECT"),
    "wrap": (topi.nn.circular_pad,),
}
"""TVM's function and its further arguments, by mode."""
_FIRST_WRAP: Final = 19
"""The first opset with mode `wrap`."""


def convert_pad(site: NodeSite) -> Expr:
    """Convert Pad with a constant or computed fill value, any mode, and negative pads."""
    numbers = [site.read_values(at) for at in range(len(site.inputs))]
    before, after = (
        [int(width) for width in widths]
        for widths in _read_pads(replace(site, numbers=numbers), site.inputs[0].ty.ndim)
    )
    mode = operand_facts.decode_text(site.attr.get("mode", b"constant"))
    if mode == "constant":
        return _fill_border(site, before, after)
    if mode not in _BORDERS or (mode == "wrap" and site.opset < _FIRST_WRAP):
        raise ModelError(f"{site.label} in mode {mode} is not supported")
    data = _crop_data(site.bb, site.inputs[0], before, after)
    before, after = ([max(width, 0) for width in widths] for widths in (before, after))
    if mode == "reflect":
        _check_reflection(site, data, before, after)
    pad, *options = _BORDERS[mode]
    return site.bb.emit_te(pad, data, before, after, *options)


def _fill_border(site: NodeSite, before: list[int], after: list[int]) -> Expr:
    """Pad by a number, which may be computed."""
    data, number = site.inputs[0], site.find_input(2)
    if number is None:
        return site.bb.emit_te(topi.nn.pad, data, before, after, site.attr.get("value", 0.0))
    values = site.read_values(2)
    if values is not None:
        return site.bb.emit_te(topi.nn.pad, data, before, after, values.item())
    number = site.bb.normalize(relax.op.reshape(number, []))

    def pad(data: te.Tensor, number: Expr) -> te.Tensor:
        sizes = [int(size) for size in data.shape]
        shape = [sum(each) for each in zip(before, sizes, after, strict=True)]

        def at(*index: Expr) -> Expr:
            places = [place - less for place, less in zip(index, before, strict=True)]
            inside = [
                tirx.all(place >= 0, place < size)
                for place, size in zip(places, sizes, strict=True)
            ]
            return tirx.if_then_else(tirx.all(*inside), data[tuple(places)], number[()])

        return te.compute(shape, at, name="pad")

    return site.bb.emit_te(pad, data, number, primfunc_name_hint="pad")


def _crop_data(bb: BlockBuilder, data: Expr, before: Sequence[int], after: Sequence[int]) -> Expr:
    """Crop data by its negative pads.

    This comes first: the border modes read the cropped data.
    """
    axes = [axis for axis, widths in enumerate(zip(before, after, strict=True)) if min(widths) < 0]
    if not axes:
        return data
    sizes = operand_facts.require_shape(data, "what Pad takes elements away from")
    firsts = [max(-before[axis], 0) for axis in axes]
    ends = [sizes[axis] - max(-after[axis], 0) for axis in axes]
    return bb.normalize(relax.op.strided_slice(data, axes, firsts, ends))


def _check_reflection(
    site: NodeSite, data: Expr, before: Sequence[int], after: Sequence[int]
) -> None:
    """Reject reflect pads that are not smaller than the axis: the edge itself is not repeated."""
    sizes = operand_facts.read_extents(data.ty, f"input of {site.label}")
    for size, *borders in zip(sizes, before, after, strict=True):
        if 0 <= size <= max(borders):
            raise ModelError(f"{site.label} reflects {max(borders)} of {size} elements")


def convert_dynamic_pad(site: NodeSite) -> Expr | None:
    """Convert Pad of a dynamic dimension, or by a dynamic width; None if all are static."""
    extents, bb, label = site.extents, site.bb, site.label
    sizes = site.read_sizes()
    before, after = _read_pads(site, len(sizes))
    if not is_open([*sizes, *before, *after]):
        return None
    mode = operand_facts.decode_text(site.attr.get("mode", b"constant"))
    output_sizes = [extents.simple(sum(three)) for three in zip(before, sizes, after, strict=True)]
    number = site.find_input(2)
    if number is None:
        number = relax.const(site.attr.get("value", 0), str(site.inputs[0].ty.dtype))
    number = bb.emit(relax.op.reshape(number, []))
    if mode != "constant":
        minimums = _list_needed_elements(extents, mode, zip(sizes, before, after, strict=True))
        extents.require(bb, minimums, f"{label} in mode {mode} adds more than there is")

    def compute(data: te.Tensor, number: Expr, size_arguments: Sequence[Expr]) -> te.Tensor:
        shifts = size_arguments[len(sizes) :]

        def at(*index: Expr) -> Expr:
            places = [place - shift for place, shift in zip(index, shifts, strict=True)]
            if mode != "constant":
                return data[
                    tuple(_PLACES[mode](*pair) for pair in zip(places, data.shape, strict=True))
                ]
            inside = [
                tirx.all(place >= 0, place < size)
                for place, size, is_padded in zip(places, data.shape, pads, strict=True)
                if is_padded
            ]
            if not inside:
                return data[tuple(places)]
            return tirx.if_then_else(tirx.all(*inside), data[tuple(places)], number[()])

        return te.compute(list(size_arguments[: len(sizes)]), at, name="pad")

    pads = [
        not (is_number(low, 0) and is_number(high, 0))
        for low, high in zip(before, after, strict=True)
    ]
    if mode not in _PLACES and mode != "constant":
        raise ModelError(f"{label} in mode {mode} is not supported")
    sizes_of = [as_int64(size) for size in (*output_sizes, *before)]
    return bb.emit_te(compute, site.inputs[0], number, sizes_of, primfunc_name_hint="pad")


def _list_needed_elements(
    extents: Extents, mode: str, axes: Iterable[tuple[Size, Size, Size]]
) -> list[tuple[Size, Size]]:
    """Return (elements that the border reads, size of the axis) for each padded axis."""
    pairs = []
    for size, low, high in axes:
        if not (is_number(low, 0) and is_number(high, 0)):
            widest = extents.simple(tirx.max(as_int64(low), as_int64(high)))
            pairs.append((widest + 1 if mode == "reflect" else 1, size))
    return pairs


def _read_pads(site: NodeSite, rank: int) -> tuple[list[Size], list[Size]]:
    """Return the widths before and after each axis, from the elements of the inputs."""
    numbers = [*site.numbers, None, None, None][:4]
    pad_values = site.attr.get("pads", numbers[1])
    if pad_values is None:
        raise ModelError(f"what {site.label} adds depends on what the model is given")
    pads = [number if not isinstance(number, int) else int(number) for number in list(pad_values)]
    half = len(pads) // 2
    axes = list(range(half))
    if site.find_input(3) is not None:
        if numbers[3] is None:
            raise ModelError(f"which axes {site.label} works on depends on what the model is given")
        axes = [int(axis) % rank for axis in numbers[3]]
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[half + at]
    return before, after


def _find_edge_place(place: Expr, size: Expr) -> Expr:
    return tirx.max(tirx.min(place, size - 1), as_integer(0))


def _find_reflected_place(place: Expr, size: Expr) -> Expr:
    front = tirx.if_then_else(place < 0, -place, place)
    return tirx.if_then_else(front >= size, 2 * size - 2 - front, front)


_PLACES: Final[Mapping[str, Callable[[Expr, Expr], Expr]]] = {
    "edge": _find_edge_place,
    "reflect": _find_reflected_place,
    "wrap": tirx.floormod,
}
"""Index of the element that is read outside of the image, by mode."""


def _check_node(
    node: NodeProto, shapes: Mapping[str, Shape], initializers: Mapping[str, TensorProto]
) -> None:
    """Reject reflect pads that are not smaller than the axis: the edge itself is not repeated."""
    pads: Sequence[int] = []  # pads may be computed, and axes may be an input
    is_reflected = read_attributes(node).get("mode") == b"reflect"
    if is_reflected and node.input[1:2] and not any(node.input[3:]):
        tensor = initializers.get(node.input[1])
        pads = [] if tensor is None else numpy_helper.to_array(tensor).tolist()
    shape = shapes.get(node.input[0], ()) if node.input else ()
    for size, *borders in zip(shape, pads[: len(shape)], pads[len(shape) :], strict=False):
        if max(borders) >= size:
            raise ModelError(f"{describe_node(node)} reflects {max(borders)} of {size}")


OPERATORS: Final = (
    Operator(name="CenterCropPad", since=18, body=write_onnx_body),
    Operator(
        name="Pad",
        since=25,
        converter=convert_pad,
        convert_dynamic=convert_dynamic_pad,
        steering=(1, 2, 3),
        deciding=(1,),
        check_sizes=_check_node,
        traits=Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS,
    ),
)
