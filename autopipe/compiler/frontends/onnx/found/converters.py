"""Converters of nodes whose results are as long as values of the model say."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx.along import AS_SORTED, ranked
from autopipe.compiler.frontends.onnx.found import boxes, kernels
from autopipe.compiler.frontends.onnx.found.slices import divided, sliced
from autopipe.compiler.frontends.onnx.open import shaping
from autopipe.compiler.frontends.onnx.open.extents import (
    Extents,
    is_open,
    shape_of,
    total,
    wide,
)
from autopipe.compiler.frontends.onnx.open.shaping import called, emit, taken
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG001  TVM's converters have no types, and all of these have one signature

_ZERO: Final = relax.const(0, "int64")


def nonzero(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """NonZero: the places of what is not 0, one column each."""
    data = inputs[0]
    if isinstance(data, ir.GenericConst):
        return None
    sizes = extents.shape(data, called("NonZero", attr)) or [1]
    found = _places(extents, bb, data, sizes, _node(attr))
    if len(sizes) == 1:
        return relax.op.reshape(found, shape_of([1, *extents.shape(found, "places")]))

    def compute(places: Any, *sizes: Any) -> Any:
        def at(axis: Any, place: Any) -> Any:
            value, rest = wide(0), places[place]
            for number in reversed(range(len(sizes))):
                value = tirx.if_then_else(axis == number, tirx.floormod(rest, sizes[number]), value)
                rest = tirx.floordiv(rest, sizes[number])
            return value

        return te.compute([wide(len(sizes)), places.shape[0]], at, name="unravelled")

    return bb.emit_te(compute, found, *map(wide, sizes), primfunc_name_hint="unravelled")


def compress(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Compress: the slices that a condition chooses."""
    data, condition = inputs[:2]
    if isinstance(condition, ir.GenericConst):
        return None
    what = called("Compress", attr)
    axis, sizes = attr.get("axis"), extents.shape(data, what)
    if axis is None:
        data = bb.emit(relax.op.reshape(data, shape_of([total(sizes)])))
        axis, sizes = 0, [total(sizes)]
    asked = extents.shape(condition, what)
    if extents.truth(asked[0] <= sizes[int(axis)]) is not True:
        raise ModelError(f"{what}: the condition may be longer than the axis")
    chosen = _places(extents, bb, condition, asked, _node(attr))
    return relax.op.take(data, chosen, int(axis))


def suppressed(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """NonMaxSuppression."""
    what = called("NonMaxSuppression", attr)
    given, scores, most, overlap, least = [*inputs, None, None, None][:5]
    images, classes, count = extents.shape(scores, what)
    if any(str(one.ty.dtype) != "float32" for one in (given, scores)):
        raise ModelError(f"{what}: boxes and scores have to be float32")
    for size, other in zip(extents.shape(given, what), (images, count, 4), strict=True):
        if not extents.equal(size, other):
            raise ModelError(f"{what}: boxes and scores are not of the same images and boxes")
    order = bb.emit(relax.op.argsort(scores, axis=2, descending=True, dtype="int64"))
    single = [
        _single(bb, most, "int64", 0),
        _single(bb, overlap, "float32", 0.0),
        *([] if least is None else [_single(bb, least, "float32", 0.0)]),
    ]
    centered = bool(attr.get("center_point_box", 0))

    def pick(boxes_: Any, scores: Any, order: Any, most: Any, overlap: Any, *least: Any) -> Any:
        threshold = least[0] if least else None
        return boxes.picked(boxes_, scores, order, most, overlap, threshold, centered=centered)

    made = bb.emit_te(pick, given, scores, order, *single, primfunc_name_hint="picked")
    kept, counts = (bb.emit(relax.TupleGetItem(made, at)) for at in range(2))
    limit = 0 if most is None else None if numbers[2] is None else int(numbers[2].reshape(-1)[0])
    of_class = count if limit is None else min(extents.bounds(count)[1], max(limit, 0))
    ends, found = _summed(extents, bb, counts, _node(attr), total([images, classes, of_class]))

    def listed(kept: Any, counts: Any, ends: Any, found: Any, classes: Any) -> Any:
        return boxes.listed(kept, counts, ends, classes, found)

    return bb.emit_te(listed, kept, counts, ends, found, wide(classes), primfunc_name_hint="listed")


def best(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """TopK with a number of results that is computed, or of an axis that may be shorter."""
    what = called("TopK", attr)
    sizes = extents.shape(inputs[0], what)
    axis = int(attr.get("axis", -1)) % len(sizes)
    if "k" in attr:
        count: Any = int(attr["k"])
    elif numbers[1] is not None:
        count = numbers[1].reshape(-1)[0]
    else:
        count = extents.read(bb, inputs[1], _node(attr), extents.bounds(sizes[axis])[1])
        count = count[0]
    if not is_open([sizes[axis], count]):
        return None
    if extents.truth(count <= sizes[axis]) is not True:
        count = extents.simple(tirx.min(wide(count), wide(sizes[axis])))
    made = bb.normalize(ranked(bb, inputs[0], attr, -1))
    results = (bb.emit(relax.TupleGetItem(made, at)) for at in range(2))
    return relax.Tuple([taken(extents, bb, one, axis, 0, 1, count) for one in results])


def ranged(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Range between numbers that are computed."""
    if all(one is not None for one in numbers[:3]):
        return shaping.counted(extents, bb, inputs, numbers, attr)
    start, limit, step = (bb.emit(relax.op.reshape(one, [1])) for one in inputs[:3])
    dtype = str(start.ty.dtype)
    steps = bb.emit(relax.op.subtract(limit, start))
    if dtype.startswith("float"):
        steps = bb.emit(relax.op.ceil(bb.emit(relax.op.divide(steps, step))))
    else:  # -(-a // b) is a / b, rounded up
        back = bb.emit(relax.op.floor_divide(bb.emit(relax.op.negative(steps)), step))
        steps = bb.emit(relax.op.negative(back))
    count = bb.emit(relax.op.astype(steps, "int64"))
    count = bb.emit(relax.op.maximum(count, relax.const([0], "int64")))
    (found,) = extents.read(bb, count, _node(attr))

    def compute(start: Any, step: Any, found: Any) -> Any:
        return te.compute(
            [found], lambda at: start[0] + tirx.Cast(dtype, at) * step[0], name="range"
        )

    return bb.emit_te(compute, start, step, found, primfunc_name_hint="range")


def reshaped(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Reshape to sizes that are computed, where 0 is the size there was and -1 what is left.

    Sizes that do not hold just these elements end a call with an error.
    """
    if numbers[1] is not None:
        return shaping.reshape(extents, bb, inputs, numbers, attr)
    what = called("Reshape", attr)
    data, wanted = inputs[:2]
    before, count = extents.shape(data, what), extents.shape(wanted, what)[0]
    zero, one = _ZERO, relax.const(1, "int64")
    if not attr.get("allowzero", 0):
        same = _tensor(extents, bb, (before + [0] * count)[:count])
        wanted = bb.emit(relax.op.where(bb.emit(relax.op.equal(wanted, zero)), same, wanted))
    open_ = bb.emit(relax.op.less(wanted, zero))
    others = bb.emit(relax.op.prod(bb.emit(relax.op.where(open_, one, wanted)), keepdims=True))
    others = bb.emit(relax.op.maximum(others, one))
    whole_ = _tensor(extents, bb, [extents.simple(total(before))])
    rest = bb.emit(relax.op.floor_divide(whole_, others))
    wanted = bb.emit(relax.op.where(open_, rest, wanted))
    sizes = extents.read(bb, wanted, _node(attr), allowed=_holds(bb, wanted, whole_))
    return relax.op.reshape(data, shape_of(sizes))


def _holds(bb: Any, sizes: Any, elements: Any) -> Any:
    """Tell whether sizes hold so many elements. Products of floats do not wrap as integers do."""
    sizes, elements = (bb.emit(relax.op.astype(one, "float64")) for one in (sizes, elements))
    return bb.emit(relax.op.equal(bb.emit(relax.op.prod(sizes, keepdims=True)), elements))


def unique(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Unique of all elements: sorted, equal ones are neighbours, and the first of each counts."""
    data = inputs[0]
    if isinstance(data, ir.GenericConst):
        return None
    what = called("Unique", attr)
    sizes = extents.shape(data, what)
    if "axis" in attr and len(sizes) > 1:
        raise ModelError(f"{what} along an axis of several is not supported")
    dtype, size = str(data.ty.dtype), extents.simple(total(sizes))
    flat = bb.emit(relax.op.reshape(data, shape_of([size])))
    flat = bb.emit(relax.op.astype(flat, AS_SORTED[dtype])) if dtype in AS_SORTED else flat
    order = bb.emit(relax.op.argsort(flat, axis=0, descending=False, dtype="int64"))
    ordered = bb.emit(relax.op.take(flat, order, 0))

    def first(ordered: Any) -> Any:
        def at(place: Any) -> Any:
            before = ordered[tirx.max(place - 1, wide(0))]
            return tirx.Cast("int64", tirx.any(place == 0, ordered[place] != before))

        return te.compute(ordered.shape, at, name="first")

    news = bb.emit_te(first, ordered, primfunc_name_hint="first")
    starts = _places(extents, bb, news, [size], _node(attr))
    return _grouped(extents, bb, attr, (flat, order, news, starts, dtype))


def _grouped(extents: Extents, bb: Any, attr: Any, parts: tuple[Any, ...]) -> Any:
    """Return the outputs of Unique: elements, their first places, where each went, how many."""
    flat, order, news, starts, dtype = parts
    firsts = bb.emit(relax.op.take(order, starts, 0))
    size = extents.shape(flat, "the input")[0]

    def counts(starts: Any, size: Any) -> Any:
        def at(group: Any) -> Any:
            last = starts.shape[0] - 1
            after = tirx.if_then_else(group < last, starts[tirx.min(group + 1, last)], size)
            return after - starts[group]

        return te.compute(starts.shape, at, name="counts")

    numbers = bb.emit_te(counts, starts, wide(size), primfunc_name_hint="counts")
    ends = bb.emit(relax.op.cumsum(news, axis=0, dtype="int64"))

    def groups(order: Any, ends: Any) -> Any:
        def write(order: Any, ends: Any, out: Any) -> None:
            with T.serial(wide(0), order.shape[0]) as at:
                out[order[at]] = ends[at] - wide(1)

        return kernels.extern(write, [order, ends], [(order.shape, "int64")], "groups")[0]

    inverse = bb.emit_te(groups, order, ends, primfunc_name_hint="groups")
    if not attr.get("sorted", 1):
        ranks = bb.emit(relax.op.argsort(firsts, axis=0, descending=False, dtype="int64"))
        places = bb.emit(relax.op.argsort(ranks, axis=0, descending=False, dtype="int64"))
        firsts, numbers = (bb.emit(relax.op.take(one, ranks, 0)) for one in (firsts, numbers))
        inverse = bb.emit(relax.op.take(places, inverse, 0))
    values = bb.emit(relax.op.take(flat, firsts, 0))
    values = bb.emit(relax.op.astype(values, dtype)) if str(values.ty.dtype) != dtype else values
    made = [values, firsts, inverse, numbers][: attr["tvm_custom"]["num_outputs"]]
    return relax.Tuple(made) if len(made) > 1 else made[0]


RULES: Final[Mapping[str, Any]] = {
    "NonZero": nonzero,
    "Compress": compress,
    "NonMaxSuppression": suppressed,
    "TopK": best,
    "Unique": unique,
    "Range": ranged,
    "Reshape": reshaped,
    "Slice": sliced,
    "Split": divided,
}

READ: Final[Mapping[str, Sequence[int]]] = {
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "OneHot": (1,),
    "Tile": (1,),
    "Resize": (3,),
}
"""Inputs whose numbers are sizes, by operator."""


def _tensor(extents: Extents, bb: Any, numbers: Sequence[Any]) -> Any:
    made: Array = np.empty(len(numbers), object)
    made[:] = list(numbers)
    return extents.put(bb, made, "int64")


def _single(bb: Any, value: Any, dtype: str, default: float) -> Any:
    """Return one number as a tensor [1]."""
    if value is None:
        return relax.const([default], dtype)
    value = bb.emit(relax.op.reshape(value, [1]))
    return value if str(value.ty.dtype) == dtype else bb.emit(relax.op.astype(value, dtype))


def _places(extents: Extents, bb: Any, data: Any, sizes: Sequence[Any], name: str) -> Any:
    """Return the places of what is not 0 in the flat data."""
    size = extents.simple(total(sizes))
    flat = bb.emit(relax.op.reshape(data, shape_of([size])))
    counts = emit(bb, lambda flat, size: kernels.counted(flat, size[0]), flat, [size], "counted")
    ends, found = _summed(extents, bb, counts, name, size)

    def compute(flat: Any, ends: Any, size: Any, found: Any) -> Any:
        return kernels.placed(flat, ends, size, found)

    return bb.emit_te(compute, flat, ends, wide(size), found, primfunc_name_hint="placed")


def _summed(extents: Extents, bb: Any, counts: Any, name: str, most: Any) -> tuple[Any, Any]:
    """Return how many there are up to the end of each count, and how many there are at all."""
    ends = bb.emit(relax.op.cumsum(counts, axis=0, dtype="int64"))
    number = bb.emit_te(kernels.number, counts, primfunc_name_hint="number")
    (found,) = extents.read(bb, number, name, extents.bounds(most)[1])
    return ends, found


def _node(attr: Any) -> str:
    return str(attr["tvm_custom"]["name"])
