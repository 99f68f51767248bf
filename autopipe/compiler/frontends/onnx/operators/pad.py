"""Pad and CenterCropPad."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from onnx import NodeProto, TensorProto, numpy_helper
from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
    Size,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.reading.tensors import describe_node as tell_node
from autopipe.errors import ModelError


class Pad(onnx_frontend.Pad):
    """Pad with a constant or computed fill value, any mode, and negative pads."""

    @classmethod
    def _parse_pads_and_axes(
        cls, inputs: Inputs, params: Parameters
    ) -> tuple[list[int], list[int], list[int]]:
        operands: list[Expr | None] = list(inputs)
        if _is_computed(inputs, params):
            operands[2] = None
        operand_facts.require_values(operands[1], params, "what Pad adds")
        return super()._parse_pads_and_axes(onnx_frontend.onnx_input(operands), params)

    @classmethod
    def _lower_pad(
        cls,
        bb: BlockBuilder,
        inputs: Inputs,
        attr: Attributes,
        params: Parameters,
        allowed_modes: object,
    ) -> Expr:
        mode = operand_facts.decode_text(attr.get("mode", b"constant"))
        before, after, _ = cls._parse_pads_and_axes(inputs, params)
        if mode != "constant":
            cropped_data = _crop_data(bb, inputs[0], before, after)
            widths = [max(width, 0) for width in (*before, *after)]
            if mode == "reflect":
                _check_reflection(cropped_data, widths, attr)
            operands = onnx_frontend.onnx_input([cropped_data, relax.const(widths, "int64"), None])
            return super()._lower_pad(bb, operands, attr, params, allowed_modes)
        if not _is_computed(inputs, params):
            return super()._lower_pad(bb, inputs, attr, params, allowed_modes)
        number = bb.normalize(relax.op.reshape(inputs[2], []))

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

        return bb.emit_te(pad, inputs[0], number, primfunc_name_hint="pad")


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


def _check_reflection(data: Expr, widths: Sequence[int], attr: Attributes) -> None:
    """Reject reflect pads that are not smaller than the axis: the edge itself is not repeated."""
    sizes = operand_facts.read_extents(
        data.ty, f"input of Pad {operand_facts.quote_node_name(attr)}"
    )
    for size, *borders in zip(sizes, widths[: len(sizes)], widths[len(sizes) :], strict=True):
        if 0 <= size <= max(borders):
            raise ModelError(
                f"Pad {operand_facts.quote_node_name(attr)} reflects {max(borders)} "
                f"of {size} elements"
            )


def _is_computed(inputs: Inputs, params: Parameters) -> bool:
    """Whether the fill value is computed."""
    number = find_optional_input(inputs, 2)
    return number is not None and operand_facts.read_values(number, params) is None


def convert_dynamic_pad(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Pad of a dynamic dimension, or by a dynamic width; None if all are static."""
    label = describe_node("Pad", attr)
    sizes = extents.shape(inputs[0], label)
    before, after = _read_pads(inputs, [*numbers, None, None, None][:4], attr, len(sizes), label)
    if not is_open([*sizes, *before, *after]):
        return None
    mode = operand_facts.decode_text(attr.get("mode", b"constant"))
    output_sizes = [extents.simple(sum(three)) for three in zip(before, sizes, after, strict=True)]
    number = find_optional_input(inputs, 2)
    if number is None:
        number = relax.const(attr.get("value", 0), str(inputs[0].ty.dtype))
    number = bb.emit(relax.op.reshape(number, []))
    rank = len(sizes)
    if mode != "constant":
        minimums = _list_needed_elements(extents, mode, zip(sizes, before, after, strict=True))
        extents.require(bb, minimums, f"{label} in mode {mode} adds more than there is")

    def compute(data: te.Tensor, number: Expr, size_arguments: Sequence[Expr]) -> te.Tensor:
        shifts = size_arguments[rank:]

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

        return te.compute(list(size_arguments[:rank]), at, name="pad")

    pads = [not (_is_none(low) and _is_none(high)) for low, high in zip(before, after, strict=True)]
    if mode not in _PLACES and mode != "constant":
        raise ModelError(f"{label} in mode {mode} is not supported")
    sizes_of = [as_int64(size) for size in (*output_sizes, *before)]
    return bb.emit_te(compute, inputs[0], number, sizes_of, primfunc_name_hint="pad")


def _list_needed_elements(
    extents: Extents, mode: str, axes: Iterable[tuple[Size, Size, Size]]
) -> list[tuple[Size, Size]]:
    """Return (elements that the border reads, size of the axis) for each padded axis."""
    pairs = []
    for size, low, high in axes:
        if not (_is_none(low) and _is_none(high)):
            widest = extents.simple(tirx.max(as_int64(low), as_int64(high)))
            pairs.append((widest + 1 if mode == "reflect" else 1, size))
    return pairs


def _is_none(number: Size) -> bool:
    return isinstance(number, int) and number == 0


def _read_pads(
    inputs: Inputs, numbers: Sequence[Array | None], attr: Attributes, rank: int, label: str
) -> tuple[list[Size], list[Size]]:
    pad_values = attr.get("pads", numbers[1])
    if pad_values is None:
        raise ModelError(f"what {label} adds depends on what the model is given")
    pads = [number if not isinstance(number, int) else int(number) for number in list(pad_values)]
    half = len(pads) // 2
    axes = list(range(half))
    if find_optional_input(inputs, 3) is not None:
        if numbers[3] is None:
            raise ModelError(f"which axes {label} works on depends on what the model is given")
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
    modes = [field.s for field in node.attribute if field.name == "mode"]
    pads: Sequence[int] = []  # pads may be computed, and axes may be an input
    if modes == [b"reflect"] and node.input[1:2] and node.input[1] in initializers:
        pads = (
            []
            if any(node.input[3:])
            else numpy_helper.to_array(initializers[node.input[1]]).tolist()
        )
    shape = shapes.get(node.input[0], ()) if node.input else ()
    for size, *borders in zip(shape, pads[: len(shape)], pads[len(shape) :], strict=False):
        if max(borders) >= size:
            raise ModelError(f"{tell_node(node)} reflects {max(borders)} of {size}")


OPERATORS: Final = (
    Operator(name="CenterCropPad", since=18, body=write_onnx_body),
    Operator(
        name="Pad",
        since=25,
        converter=Pad,
        convert_dynamic=convert_dynamic_pad,
        steering=(1, 2, 3),
        deciding=(1,),
        check_sizes=_check_node,
        traits=Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS,
    ),
)
