"""Slice whose starts or ends are computed, and Split into parts that are."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from tvm import relax, te, tirx

from autopipe.compiler.frontends.onnx.open import shaping
from autopipe.compiler.frontends.onnx.open.extents import Extents, wide
from autopipe.compiler.frontends.onnx.open.shaping import called
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.config.dimension import LARGEST
from autopipe.errors import ModelError

# ruff: noqa: ANN401, PLR0913, PLR0917  TVM's converters have no types, and these one signature

_ZERO: Final = relax.const(0, "int64")


def sliced(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Slice from or to places that are computed, an axis at a time."""
    if len(inputs) < 3 or all(one is not None for one in numbers[1:3]):  # noqa: PLR2004 - as it was first defined
        return shaping.sliced(extents, bb, inputs, numbers, attr)
    what = called("Slice", attr)
    data, starts, ends = inputs[:3]
    rank, count = len(extents.shape(data, what)), int(extents.shape(starts, what)[0])
    axes, steps = (
        default if at >= len(inputs) or inputs[at] is None else numbers[at]
        for at, default in ((3, range(count)), (4, [1] * count))
    )
    if axes is None or steps is None or not all(isinstance(step, int) and step for step in steps):
        raise ModelError(f"{what} has axes or steps that are computed")
    for at, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        ends_of_axis = [
            one if count == 1 else bb.emit(relax.op.strided_slice(one, [0], [at], [at + 1]))
            for one in (starts, ends)
        ]
        name = _node(attr) if count == 1 else f"{_node(attr)}.{at}"
        data = _sliced_axis(extents, bb, data, ends_of_axis, int(axis) % rank, step, name)
    return data


def divided(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Split into parts that are computed; together they have to be the whole."""
    if len(inputs) < 2 or inputs[1] is None or numbers[1] is not None:  # noqa: PLR2004 - optional
        return shaping.split(extents, bb, inputs, numbers, attr)
    sizes = extents.shape(inputs[0], called("Split", attr))
    most = extents.bounds(sizes[int(attr.get("axis", 0))])[1]
    parts = extents.read(bb, inputs[1], _node(attr), most, relax.const([True], "bool"))
    return shaping.split(extents, bb, inputs, [numbers[0], parts], attr)


def _sliced_axis(
    extents: Extents, bb: Any, data: Any, ends: Sequence[Any], axis: int, step: int, name: str
) -> Any:
    """Return the elements of an axis from a start to an end, both tensors [1], by a step.

    The kernel reads no place outside of the axis, whatever start it is given.
    """
    size = extents.shape(data, name)[axis]
    step = max(min(step, LARGEST), -LARGEST)  # no axis is longer, and sums fit
    sign, sizes = (1 if step > 0 else -1), _tensor(extents, bb, size)
    first, last = (
        _inside(bb, place, sizes, least, sign)
        for place, least in zip(ends, (0, min(sign, 0)), strict=True)
    )
    span = bb.emit(relax.op.subtract(last, first))
    rounded = bb.emit(relax.op.add(span, relax.const([step - sign], "int64")))
    counts = bb.emit(relax.op.floor_divide(rounded, relax.const([step], "int64")))
    counts = bb.emit(relax.op.minimum(bb.emit(relax.op.maximum(counts, _ZERO)), sizes))
    (found,) = extents.read(bb, counts, name, extents.bounds(size)[1])

    def compute(data: Any, first: Any, found: Any) -> Any:
        shape = [found if at == axis else extent for at, extent in enumerate(data.shape)]

        def element(*index: Any) -> Any:
            place = first[0] + index[axis] * step
            inside = tirx.max(tirx.min(place, wide(data.shape[axis]) - 1), wide(0))
            return data[*index[:axis], inside, *index[axis + 1 :]]

        return te.compute(shape, element, name="slice")

    return bb.emit_te(compute, data, first, found, primfunc_name_hint="slice")


def _inside(bb: Any, places: Any, sizes: Any, least: int, sign: int) -> Any:
    """Return places as ONNX means them: counted from the end if negative, and cut.

    Steps back begin at the last element at most.
    """
    places = places if places.ty.dtype == "int64" else bb.emit(relax.op.astype(places, "int64"))
    back = bb.emit(relax.op.add(places, sizes))
    places = bb.emit(relax.op.where(bb.emit(relax.op.less(places, _ZERO)), back, places))
    most = sizes if sign > 0 else bb.emit(relax.op.subtract(sizes, relax.const([1], "int64")))
    return bb.emit(
        relax.op.maximum(bb.emit(relax.op.minimum(places, most)), relax.const([least], "int64"))
    )


def _tensor(extents: Extents, bb: Any, size: Any) -> Any:
    """Return a size as a tensor [1]."""
    made: Array = np.empty(1, object)
    made[0] = size
    return extents.put(bb, made, "int64")


def _node(attr: Any) -> str:
    return str(attr["tvm_custom"]["name"])
