"""Slice."""

from collections.abc import Iterable, Sequence
from typing import Final

from onnx import NodeProto
from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    advise_on_sizes,
    as_int64,
    as_vector_array,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import is_number, take_part
from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.config.dimension import LARGEST
from autopipe.errors import ModelError

_ZERO: Final = relax.const(0, "int64")
_PLACES_ARE_INPUTS: Final = 10


def convert_slice(site: NodeSite) -> Expr:
    """Convert Slice, with attributes before opset 10 and with inputs since then."""
    if site.opset < _PLACES_ARE_INPUTS:
        bounds = [relax.const(list(site.attr[name]), "int64") for name in ("starts", "ends")]
        axes = relax.const(list(site.attr["axes"]), "int64") if "axes" in site.attr else None
        return site.convert_by(_slice_data, [site.inputs[0], *bounds, axes, None])
    return _slice_data(site)


def _slice_data(site: NodeSite) -> Expr:
    data, operands = site.inputs[0], [site.find_input(at) for at in range(1, 5)]
    numbers = [site.read_values(at) for at in range(1, 5)]
    has_computed = any(
        value is not None and found is None for value, found in zip(operands, numbers, strict=True)
    )
    is_tensor = isinstance(data.ty, relax.TensorType)
    if has_computed or not is_tensor or not operand_facts.is_fixed(data.ty):
        return site.convert_by_tvm([data, *operands])
    sizes = operand_facts.require_shape(data, f"input of {site.name!r}")
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


def _slice_at_known_places(site: NodeSite) -> Expr | None:
    """Convert Slice with starts and ends known as sizes; None if another input is computed."""
    sizes = site.read_sizes()
    slice_inputs: Sequence[Iterable[Size] | None] = [*site.numbers[1:], None, None, None, None][:4]
    if "starts" in site.attr:
        slice_inputs = [site.attr.get("starts"), site.attr.get("ends"), site.attr.get("axes"), None]
    starts, ends, axes, steps = (None if one is None else list(one) for one in slice_inputs)
    if (
        starts is None
        or ends is None
        or any(
            one is None and site.find_input(at) is not None for at, one in ((3, axes), (4, steps))
        )
    ):
        return None
    sliced_axes = list(range(len(starts))) if axes is None else [int(a) % len(sizes) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    if not is_open([*starts, *ends, *(sizes[axis] for axis in sliced_axes)]):
        return None
    data = site.inputs[0]
    for start, end, axis, step in zip(starts, ends, sliced_axes, steps, strict=True):
        data = _slice_axis(site, data, (start, end, step), axis, sizes[axis])
    return data


def _slice_axis(
    site: NodeSite, data: Expr, place: tuple[Size, Size, Size], axis: int, size: Size
) -> Expr:
    """Slice one axis by (start, end, step)."""
    extents, (start, end, step) = site.extents, place
    if not isinstance(step, int) or step == 0:
        raise ModelError(f"{site.label} has a dynamic step; {advise_on_sizes([step])}")
    if step > 0:
        first = _clip_place(site, start, size, 0, size)
        last = _clip_place(site, end, size, 0, size)
        span = extents.simple(last - first)
    else:
        first = _clip_place(site, start, size, 0, size - 1)
        last = _clip_place(site, end, size, -1, size - 1)
        span = extents.simple(first - last)
    if is_number(first, 0) and step == 1 and extents.equal(last, size):
        return data
    count = extents.count_steps(span, abs(step))
    if isinstance(count, int) and count == 0:
        raise ModelError(f"{site.label} leaves nothing at any size")
    return take_part(site, data, axis, first, count, step=step)


def _clip_place(site: NodeSite, place: Size, size: Size, least: Size, most: Size) -> Size:
    """Resolve a start or end as in ONNX: negative ones count from the end, and all are clipped."""
    extents = site.extents
    negative = extents.truth(place < 0)
    if negative is None:
        raise ModelError(
            f"{site.label} counts from the front at some sizes and from the back at others; "
            f"{advise_on_sizes([place, size])}"
        )
    position = extents.simple(place + size) if negative else extents.simple(place)
    if extents.truth(position >= least) is not True:
        position = extents.simple(tirx.max(as_int64(position), as_int64(least)))
    if extents.truth(position <= most) is not True:
        position = extents.simple(tirx.min(as_int64(position), as_int64(most)))
    return position


def convert_dynamic_slice(site: NodeSite) -> Expr | None:
    """Convert Slice with computed starts or ends, one axis at a time."""
    extents, bb, inputs = site.extents, site.bb, site.inputs
    if len(inputs) < 3 or all(one is not None for one in site.numbers[1:3]):  # noqa: PLR2004 - as in opset 1
        return _slice_at_known_places(site)
    label = site.label
    data, starts, ends = inputs[:3]
    rank, count = len(extents.shape(data, label)), int(extents.shape(starts, label)[0])
    axes, steps = (
        default if at >= len(inputs) or inputs[at] is None else site.numbers[at]
        for at, default in ((3, range(count)), (4, [1] * count))
    )
    if axes is None or steps is None or not all(isinstance(step, int) and step for step in steps):
        raise ModelError(f"{label} has axes or steps that are computed")
    for at, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        ends_of_axis = [
            one if count == 1 else bb.emit(relax.op.strided_slice(one, [0], [at], [at + 1]))
            for one in (starts, ends)
        ]
        name = site.name if count == 1 else f"{site.name}.{at}"
        data = _slice_open_axis(site, name, data, ends_of_axis, (int(axis) % rank, step))
    return data


def _slice_open_axis(
    site: NodeSite, name: str, data: Expr, ends: Sequence[Expr], axis_and_step: tuple[int, int]
) -> Expr:
    """Slice an axis from a start to an end, both int64 tensors [1], by a constant step.

    The kernel clips its indices to the axis, whatever the start.
    """
    extents, bb, (axis, step) = site.extents, site.bb, axis_and_step
    size = extents.shape(data, name)[axis]
    step = max(min(step, LARGEST), -LARGEST)  # above any axis, without overflow of sums
    sign, sizes = (1 if step > 0 else -1), extents.put(bb, as_vector_array([size]), "int64")
    first, last = (
        _limit_places(bb, place, sizes, least, sign)
        for place, least in zip(ends, (0, min(sign, 0)), strict=True)
    )
    padded_span = last - first + relax.const([step - sign], "int64")
    counts = relax.op.floor_divide(padded_span, relax.const([step], "int64"))
    counts = bb.emit(relax.op.minimum(relax.op.maximum(counts, _ZERO), sizes))
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
    """Resolve computed starts or ends: negative ones count from the end, and all are clipped.

    A negative step starts at the last element at most.
    """
    places = places if places.ty.dtype == "int64" else bb.emit(relax.op.astype(places, "int64"))
    back = bb.emit(relax.op.add(places, sizes))
    places = bb.emit(relax.op.where(places < _ZERO, back, places))
    most = sizes if sign > 0 else sizes - relax.const([1], "int64")
    return bb.emit(relax.op.maximum(relax.op.minimum(places, most), relax.const([least], "int64")))


def _limit_rows(node: NodeProto, size_names: set[str], shape: Shape) -> int | None:
    """Return the rows of the table if the end of the slice is computed from shapes."""
    ends = 2
    return max(shape[:-1]) if len(node.input) > ends and node.input[ends] in size_names else None


OPERATORS: Final = (
    Operator(
        name="Slice",
        since=13,
        converter=convert_slice,
        convert_dynamic=convert_dynamic_slice,
        compute_sizes=arithmetic.move_numbers,
        deciding=(1, 2),
        table_limit=_limit_rows,
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
)
