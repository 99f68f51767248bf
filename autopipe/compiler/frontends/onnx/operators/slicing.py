"""Slice."""

from collections.abc import Iterable, Sequence
from typing import Final

from onnx import NodeProto
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
from autopipe.compiler.frontends.onnx.conversion.operand_facts import read_node_name
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    advise_on_sizes,
    as_int64,
    as_integer,
    as_vector_array,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import (
    describe_node,
    is_number,
    take_part,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.config.dimension import LARGEST
from autopipe.errors import ModelError

# ruff: noqa: E501, PLR0913, PLR0917  TVM's converters have one signature

_ZERO: Final = relax.const(0, "int64")


class Slice(onnx_frontend.Slice):
    """Slice, with attributes before opset 10 and with inputs since then."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        start_and_end = [relax.const(list(attr[name]), "int64") for name in ("starts", "ends")]
        axes = relax.const(list(attr["axes"]), "int64") if "axes" in attr else None
        return cls._impl_v13(
            bb, onnx_frontend.onnx_input([inputs[0], *start_and_end, axes, None]), attr, params
        )

    @classmethod
    def _impl_v13(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, operands = inputs[0], [find_optional_input(inputs, at) for at in range(1, 5)]
        numbers = [operand_facts.read_values(value, params) for value in operands]
        has_computed = any(
            value is not None and found is None
            for value, found in zip(operands, numbers, strict=True)
        )
        if (
            has_computed
            or not isinstance(data.ty, relax.TensorType)
            or not operand_facts.is_fixed(data.ty)
        ):
            return super()._impl_v13(bb, [data, *operands], attr, params)
        sizes = operand_facts.require_shape(data, f"input of {operand_facts.quote_node_name(attr)}")
        number_lists = [[] if found is None else found.reshape(-1).tolist() for found in numbers]
        starts, ends, axes, steps = number_lists
        axes = list(range(len(starts))) if operands[2] is None else axes
        steps = [1] * len(starts) if operands[3] is None else steps
        parts = {
            axis % len(sizes): list_slice_places(start, end, step, sizes[axis % len(sizes)])
            for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
        }
        if any(not taken for taken in parts.values()):
            output_sizes = [len(parts.get(axis, range(size))) for axis, size in enumerate(sizes)]
            return relax.op.zeros(output_sizes, str(data.ty.dtype))
        if not parts:
            return data
        firsts, lasts, strides = zip(*map(_find_ends, parts.values()), strict=True)
        return relax.op.strided_slice(data, list(parts), firsts, lasts, strides)

    _impl_v10 = _impl_v13


def list_slice_places(start: int, end: int, step: int, size: int) -> range:
    """Return the indices of an axis that ONNX's Slice selects.

    Unlike in Python, a start before the tensor is clipped to its first element, also for a negative
    step. Example: -100 to -200 by -1 of 7 elements selects index 0.
    """
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size), step)


def _find_ends(places: range) -> tuple[int, int, int]:
    """Return start, end and step for Relax, which counts a negative end from the back."""
    first, count = places.start, len(places)
    step = places.step if count > 1 else 1
    end = first + (count - 1) * step + (1 if step > 0 else -1)
    return first, end if end >= 0 else -(2**31), step


def _slice_at_known_places(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Slice with starts and ends known as sizes; None if another input is computed."""
    label = describe_node("Slice", attr)
    sizes = extents.shape(inputs[0], label)
    slice_inputs: Sequence[Iterable[Size] | None] = [*numbers[1:], None, None, None, None][:4]
    if "starts" in attr:
        slice_inputs = [attr.get("starts"), attr.get("ends"), attr.get("axes"), None]
    starts, ends, axes, steps = (None if one is None else list(one) for one in slice_inputs)
    if (
        starts is None
        or ends is None
        or any(
            one is None and find_optional_input(inputs, at) is not None
            for at, one in ((3, axes), (4, steps))
        )
    ):
        return None
    sliced_axes = list(range(len(starts))) if axes is None else [int(a) % len(sizes) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    if not is_open([*starts, *ends, *(sizes[axis] for axis in sliced_axes)]):
        return None
    data = inputs[0]
    for start, end, axis, step in zip(starts, ends, sliced_axes, steps, strict=True):
        data = _slice_axis(extents, bb, data, (start, end, step), axis, sizes[axis], label)
    return data


def _slice_axis(
    extents: Extents,
    bb: BlockBuilder,
    data: Expr,
    place: tuple[Size, Size, Size],
    axis: int,
    size: Size,
    label: str,
) -> Expr:
    """Slice one axis by (start, end, step)."""
    start, end, step = place
    if not isinstance(step, int) or step == 0:
        raise ModelError(f"{label} has a dynamic step; {advise_on_sizes([step])}")
    if step > 0:
        first = _clip_place(extents, start, size, 0, size, label)
        last = _clip_place(extents, end, size, 0, size, label)
        span = extents.simple(last - first)
    else:
        first = _clip_place(extents, start, size, 0, size - 1, label)
        last = _clip_place(extents, end, size, -1, size - 1, label)
        span = extents.simple(first - last)
    if is_number(first, 0) and step == 1 and extents.equal(last, size):
        return data
    count = extents.simple(tirx.floordiv(as_int64(span + (abs(step) - 1)), as_integer(abs(step))))
    if not extents.truth(count >= 0):
        count = extents.simple(tirx.max(as_int64(count), as_integer(0)))
    if isinstance(count, int) and count == 0:
        raise ModelError(f"{label} leaves nothing at any size")
    return take_part(extents, bb, data, axis, first, step, count)


def _clip_place(
    extents: Extents, place: Size, size: Size, least: Size, most: Size, label: str
) -> Size:
    """Resolve a start or end as in ONNX: negative ones count from the end, and all are clipped."""
    negative = extents.truth(place < 0)
    if negative is None:
        raise ModelError(
            f"{label} counts from the front at some sizes and from the back at others; {advise_on_sizes([place, size])}"
        )
    position = extents.simple(place + size) if negative else extents.simple(place)
    if extents.truth(position >= least) is not True:
        position = extents.simple(tirx.max(as_int64(position), as_int64(least)))
    if extents.truth(position <= most) is not True:
        position = extents.simple(tirx.min(as_int64(position), as_int64(most)))
    return position


def convert_dynamic_slice(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Slice with computed starts or ends, one axis at a time."""
    if len(inputs) < 3 or all(one is not None for one in numbers[1:3]):  # noqa: PLR2004 - as in opset 1
        return _slice_at_known_places(extents, bb, inputs, numbers, attr)
    label = describe_node("Slice", attr)
    data, starts, ends = inputs[:3]
    rank, count = len(extents.shape(data, label)), int(extents.shape(starts, label)[0])
    axes, steps = (
        default if at >= len(inputs) or inputs[at] is None else numbers[at]
        for at, default in ((3, range(count)), (4, [1] * count))
    )
    if axes is None or steps is None or not all(isinstance(step, int) and step for step in steps):
        raise ModelError(f"{label} has axes or steps that are computed")
    for at, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        ends_of_axis = [
            one if count == 1 else bb.emit(relax.op.strided_slice(one, [0], [at], [at + 1]))
            for one in (starts, ends)
        ]
        name = read_node_name(attr) if count == 1 else f"{read_node_name(attr)}.{at}"
        data = _slice_open_axis(extents, bb, data, ends_of_axis, int(axis) % rank, step, name)
    return data


def _slice_open_axis(
    extents: Extents,
    bb: BlockBuilder,
    data: Expr,
    ends: Sequence[Expr],
    axis: int,
    step: int,
    name: str,
) -> Expr:
    """Slice an axis from a start to an end, both int64 tensors [1], by a constant step.

    The kernel clips its indices to the axis, whatever the start.
    """
    size = extents.shape(data, name)[axis]
    step = max(min(step, LARGEST), -LARGEST)  # above any axis, without overflow of sums
    sign, sizes = (1 if step > 0 else -1), extents.put(bb, as_vector_array([size]), "int64")
    first, last = (
        _limit_places(bb, place, sizes, least, sign)
        for place, least in zip(ends, (0, min(sign, 0)), strict=True)
    )
    span = bb.emit(relax.op.subtract(last, first))
    padded_span = bb.emit(relax.op.add(span, relax.const([step - sign], "int64")))
    counts = bb.emit(relax.op.floor_divide(padded_span, relax.const([step], "int64")))
    counts = bb.emit(relax.op.minimum(bb.emit(relax.op.maximum(counts, _ZERO)), sizes))
    (length,) = extents.read(bb, counts, name, extents.bounds(size)[1])

    def compute(data: te.Tensor, first: te.Tensor, length: Expr) -> te.Tensor:
        shape = [length if at == axis else extent for at, extent in enumerate(data.shape)]

        def element(*index: Expr) -> Expr:
            place = first[0] + index[axis] * step
            inside = tirx.max(tirx.min(place, as_int64(data.shape[axis]) - 1), as_int64(0))
            return data[*index[:axis], inside, *index[axis + 1 :]]

        return te.compute(shape, element, name="slice")

    return bb.emit_te(compute, data, first, length, primfunc_name_hint="slice")


def _limit_places(bb: BlockBuilder, places: Expr, sizes: Expr, least: int, sign: int) -> Expr:
    """Resolve computed starts or ends as in ONNX: negative ones count from the end, all are clipped.

    A negative step starts at the last element at most.
    """
    places = places if places.ty.dtype == "int64" else bb.emit(relax.op.astype(places, "int64"))
    back = bb.emit(relax.op.add(places, sizes))
    places = bb.emit(relax.op.where(bb.emit(relax.op.less(places, _ZERO)), back, places))
    most = sizes if sign > 0 else bb.emit(relax.op.subtract(sizes, relax.const([1], "int64")))
    return bb.emit(
        relax.op.maximum(bb.emit(relax.op.minimum(places, most)), relax.const([least], "int64"))
    )


def _limit_rows(node: NodeProto, size_names: set[str], shape: Shape) -> int | None:
    """Return the rows of the table if the end of the slice is computed from shapes."""
    ends = 2
    return max(shape[:-1]) if len(node.input) > ends and node.input[ends] in size_names else None


OPERATORS: Final = (
    Operator(
        name="Slice",
        since=13,
        converter=Slice,
        convert_dynamic=convert_dynamic_slice,
        compute_sizes=arithmetic.slice_numbers,
        deciding=(1, 2),
        table_limit=_limit_rows,
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
)
