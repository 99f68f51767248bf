"""Converters of nodes that take numbers of open sizes: shapes, places, counts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tvm import ir, relax, te, tirx

from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.open.extents import (
    ExactPart,
    Extents,
    advice,
    is_open,
    shape_of,
    total,
    whole,
    wide,
)
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG001, PLR0913, PLR0917, E501  TVM's converters have no types, and all of these have one signature

Rule = Callable[[Extents, Any, Any, Sequence[Array | None], Mapping[str, Any]], Any]
"""Makes Relax of a node; None leaves it to the converter for fixed sizes."""


def reshape(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Reshape, its open sizes told."""
    if numbers[1] is None:
        return None
    before = extents.shape(inputs[0], called("Reshape", attr))
    wanted = list(numbers[1])
    if not attr.get("allowzero", 0):
        wanted = [before[at] if _is(size, 0) else size for at, size in enumerate(wanted)]
    rest = [at for at, size in enumerate(wanted) if _is(size, -1)]
    for at in rest:
        others = [size for size in wanted if not _is(size, -1)]
        wanted[at] = extents.simple(_share(extents, before, others))
    return relax.op.reshape(inputs[0], shape_of(wanted))


def _is(size: Any, number: int) -> bool:
    return isinstance(size, int) and size == number


def _share(extents: Extents, before: list[Any], others: list[Any]) -> Any:
    """Return what is left of the elements for one axis beside others."""
    left, over = list(before), []
    for size in others:
        same = next((at for at, one in enumerate(left) if extents.equal(one, size)), None)
        if same is None:
            over.append(size)
        else:
            del left[same]
    if not over:
        return total(left)
    return tirx.floordiv(wide(total(left)), wide(total(over)))


def expand(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Expand; a size that may be 1 is looked at when the model runs."""
    if numbers[1] is None:
        return None
    what = called("Expand", attr)
    sizes, wanted = extents.shape(inputs[0], what), list(numbers[1])
    rank = max(len(sizes), len(wanted))
    sizes, wanted = ([1] * (rank - len(one)) + list(one) for one in (sizes, wanted))
    made = [_broadcast(extents, *pair) for pair in zip(sizes, wanted, strict=True)]
    if all(extents.equal(*pair) for pair in zip(sizes, made, strict=True)):
        data = inputs[0]
        return data if data.ty.ndim == rank else relax.op.reshape(data, shape_of(made))
    return spread(extents, bb, inputs[0], made)


def _broadcast(extents: Extents, one: Any, other: Any) -> Any:
    """Return the size of two that are broadcast to each other."""
    if _is(one, 1) or extents.equal(one, other):
        return other
    if _is(other, 1):
        return one
    for size in (one, other):
        if extents.truth(size != 1):
            return size
    return extents.simple(tirx.max(wide(one), wide(other)))


def spread(extents: Extents, bb: Any, data: Any, wanted: Sequence[Any]) -> Any:
    """Return data broadcast to sizes; an axis of one element repeats it."""
    before = extents.shape(data, "the input")
    shift = len(wanted) - len(before)

    def compute(data: Any, wanted: Any) -> Any:
        def at(*index: Any) -> Any:
            places = []
            for axis, size in enumerate(before):
                place = index[shift + axis]
                same = alike[axis]
                if _is(size, 1):
                    places.append(tirx.const(0, "int64"))
                elif same or extents.truth(size != 1):
                    places.append(place)
                else:
                    places.append(
                        tirx.if_then_else(data.shape[axis] == 1, tirx.const(0, "int64"), place)
                    )
            return data[tuple(places)]

        return te.compute(wanted, at, name="spread")

    alike = [extents.equal(size, wanted[shift + at]) for at, size in enumerate(before)]
    for size, other in zip(before, wanted[shift:], strict=True):  # it repeats, or is the same
        why = f"{size} elements do not spread to {other}"
        extents.require(bb, [(size, other), (other, size)], why, [size - 1])
    return emit(bb, compute, data, wanted, "spread")


def emit(bb: Any, compute: Any, data: Any, sizes: Sequence[Any], hint: str) -> Any:
    """Return what is computed of data and sizes; a function of TVM knows no size but these."""
    return bb.emit_te(compute, data, [wide(size) for size in sizes], primfunc_name_hint=hint)


def filled(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """ConstantOfShape, of sizes that are open or were computed from some that are."""
    if numbers[0] is None or isinstance(inputs[0], ir.GenericConst):
        return None
    from onnx.numpy_helper import to_array

    value = to_array(attr["value"]).reshape(()) if "value" in attr else None
    number = relax.const(0.0, "float32") if value is None else known.stored(value)
    return relax.op.full(shape_of(numbers[0]), number, str(number.ty.dtype))


def counted(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Range of whole numbers."""
    if any(one is None for one in numbers[:3]):
        return None
    start, limit, step = (one.reshape(-1)[0] for one in numbers[:3])
    dtype = str(inputs[0].ty.dtype)
    if dtype.startswith("float"):
        parts = (start, limit, step)
        if not all(isinstance(part, ExactPart) and part.over == 1 for part in parts):
            return None
        start, limit, step = (part.number for part in parts)
    if not is_open((start, limit, step)):
        return None
    if not isinstance(step, int) or step == 0:
        raise ModelError(
            f"{called('Range', attr)} counts by steps or parts that are open; "
            f"{advice((start, limit, step))}"
        )
    span = limit - start if step > 0 else start - limit
    count = extents.simple(tirx.floordiv(wide(span + (abs(step) - 1)), whole(abs(step))))
    if not extents.truth(count >= 0):
        count = extents.simple(tirx.max(wide(count), whole(0)))
    places = bb.emit(relax.op.arange(whole(0), wide(count), whole(1), "int64"))
    if step != 1:
        places = bb.emit(relax.op.multiply(places, relax.const(step, "int64")))
    if not _is(start, 0):
        places = bb.emit(
            relax.op.add(
                places,
                inputs[0] if dtype == "int64" else bb.emit(relax.op.astype(inputs[0], "int64")),
            )
        )
    return places if dtype == "int64" else relax.op.astype(places, dtype)


def sliced(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Slice, every end within its axis."""
    what = called("Slice", attr)
    sizes = extents.shape(inputs[0], what)
    given = [*numbers[1:], None, None, None, None][:4]
    if "starts" in attr:
        given = [list(attr[name]) if name in attr else None for name in ("starts", "ends", "axes")]
        given.append(None)
    starts, ends, axes, steps = (None if one is None else list(one) for one in given)
    if (
        starts is None
        or ends is None
        or any(
            one is None and len(inputs) > at and inputs[at] is not None
            for at, one in ((3, axes), (4, steps))
        )
    ):
        return None
    axes = list(range(len(starts))) if axes is None else [int(a) % len(sizes) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    if not is_open([*starts, *ends, *(sizes[axis] for axis in axes)]):
        return None
    data = inputs[0]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        data = _part(extents, bb, data, (start, end, step), axis, sizes[axis], what)
    return data


def _part(
    extents: Extents,
    bb: Any,
    data: Any,
    place: tuple[Any, Any, Any],
    axis: int,
    size: Any,
    what: str,
) -> Any:
    """Return a part of one axis."""
    start, end, step = place
    if not isinstance(step, int) or step == 0:
        raise ModelError(f"{what} has a step that is open; {advice([step])}")
    if step > 0:
        first = _inside(extents, start, size, 0, size, what)
        last = _inside(extents, end, size, 0, size, what)
        span = extents.simple(last - first)
    else:
        first = _inside(extents, start, size, 0, size - 1, what)
        last = _inside(extents, end, size, -1, size - 1, what)
        span = extents.simple(first - last)
    if _is(first, 0) and step == 1 and extents.equal(last, size):
        return data
    count = extents.simple(tirx.floordiv(wide(span + (abs(step) - 1)), whole(abs(step))))
    if not extents.truth(count >= 0):
        count = extents.simple(tirx.max(wide(count), whole(0)))
    if isinstance(count, int) and count == 0:
        raise ModelError(f"{what} leaves nothing at any size")
    return taken(extents, bb, data, axis, first, step, count)


def _inside(extents: Extents, place: Any, size: Any, least: Any, most: Any, what: str) -> Any:
    """Return a start or an end as ONNX means it: counted from the end if negative, and clipped."""
    negative = extents.truth(place < 0)
    if negative is None:
        raise ModelError(
            f"{what} counts from the front at some sizes and from the back at others; {advice([place, size])}"
        )
    found = extents.simple(place + size) if negative else extents.simple(place)
    if extents.truth(found >= least) is not True:
        found = extents.simple(tirx.max(wide(found), wide(least)))
    if extents.truth(found <= most) is not True:
        found = extents.simple(tirx.min(wide(found), wide(most)))
    return found


def taken(
    extents: Extents, bb: Any, data: Any, axis: int, first: Any, step: int, count: Any
) -> Any:
    """Return `count` elements of an axis from `first` on."""
    end = extents.simple(first + count * step)
    if step > 0:
        return bb.emit(
            relax.op.strided_slice(
                data, [axis], [wide(first)], [wide(end)], [whole(step)], assume_inbound=True
            )
        )
    places = bb.emit(relax.op.arange(whole(0), wide(count), whole(1), "int64"))
    places = bb.emit(relax.op.multiply(places, relax.const(step, "int64")))
    start = bb.emit(relax.op.shape_to_tensor(shape_of([first])))
    places = bb.emit(relax.op.add(places, start))
    return bb.emit(relax.op.take(data, places, axis))


def tiled(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Tile."""
    if numbers[1] is None:
        return None
    sizes, repeats = extents.shape(inputs[0], called("Tile", attr)), list(numbers[1])
    if not is_open([*sizes, *repeats]):
        return None
    made = [extents.simple(size * often) for size, often in zip(sizes, repeats, strict=True)]

    def compute(data: Any, made: Any) -> Any:
        def at(*index: Any) -> Any:
            return data[
                tuple(
                    place if _is(often, 1) else tirx.floormod(place, data.shape[axis])
                    for axis, (place, often) in enumerate(zip(index, repeats, strict=True))
                )
            ]

        return te.compute(made, at, name="tile")

    return emit(bb, compute, inputs[0], made, "tile")


def split(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Split of an open axis, or into open parts."""
    what = called("Split", attr)
    sizes = extents.shape(inputs[0], what)
    axis = int(attr.get("axis", 0)) % len(sizes)
    given = numbers[1] if len(numbers) > 1 else None
    parts = list(given) if given is not None else list(attr.get("split", ()))
    if len(inputs) > 1 and inputs[1] is not None and given is None:
        return None
    if not is_open([sizes[axis], *parts]):
        return None
    if not parts:
        many = attr["tvm_custom"]["num_outputs"]
        part = extents.simple(tirx.floordiv(wide(sizes[axis] + (many - 1)), whole(many)))
        parts = [part] * (many - 1)
        parts.append(extents.simple(sizes[axis] - part * (many - 1)))
    made, first, sum_of_parts = [], 0, sum(parts)
    extents.require(
        bb, [(sum_of_parts, sizes[axis]), (sizes[axis], sum_of_parts)],
        f"{what} has parts that are not the whole",
    )  # fmt: skip
    for place, part in enumerate(parts, 1):  # at sizes that are likely, too, all within the axis
        left = extents.simple(sizes[axis] - first)
        within = extents.simple(tirx.min(wide(part), wide(left))) if place < len(parts) else left
        made.append(taken(extents, bb, inputs[0], axis, first, 1, within))
        first = extents.simple(first + within)
    return relax.Tuple(made)


def squeezed(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Squeeze of an axis that has one element at every size: `(samples - 192) // 512 + 1`."""
    what = called("Squeeze", attr)
    if len(inputs) > 1 and inputs[1] is not None and numbers[1] is None:
        return None
    sizes = extents.shape(inputs[0], what)
    given = list(numbers[1]) if len(numbers) > 1 and numbers[1] is not None else attr.get("axes")
    axes = range(len(sizes)) if given is None else [int(axis) % len(sizes) for axis in given]
    one = {axis: extents.truth(sizes[axis] == 1) for axis in axes}
    unclear = [sizes[axis] for axis, is_one in one.items() if is_one is None]
    unclear += [
        sizes[axis] for axis, is_one in one.items() if given is not None and is_one is False
    ]
    if is_open(unclear):
        raise ModelError(
            f"{what} takes an axis away that has one element at some sizes only, and {unclear[0]} "
            f"at others; {advice(unclear)}, or a range in model.dimensions where it has one"
        )
    return relax.op.reshape(
        inputs[0], shape_of([size for axis, size in enumerate(sizes) if not one.get(axis)])
    )


def called(kind: str, attr: Any) -> str:
    """Return what errors call a node."""
    return f"{kind} {known.name(attr)}"


RULES: Final[Mapping[str, Rule]] = {
    "Reshape": reshape,
    "Expand": expand,
    "ConstantOfShape": filled,
    "Range": counted,
    "Slice": sliced,
    "Tile": tiled,
    "Split": split,
    "Squeeze": squeezed,
}
