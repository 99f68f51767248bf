"""Converters of operators that work along one axis and that TVM has none for."""

from typing import Any, Final

from tvm import relax, te, tirx, topi
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.float_order import FLOATS, ordered, restored
from autopipe.compiler.frontends.onnx import known, lookups
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature


AS_SORTED: Final = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""What is sorted in the place of numbers that TVM's runtime does not sort."""
_LEAST: Final = -(2**63)


class CumProd(onnx_frontend.OnnxOpConverter):
    """Products of all elements up to each one."""

    @classmethod
    def _impl_v26(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data = inputs[0]
        axis = int(known.numbers(inputs[1], params, f"axis of {known.name(attr)}").item())
        if attr.get("reverse", 0):
            data = bb.normalize(relax.op.flip(data, axis))
        product = bb.normalize(
            relax.op.cumprod(data, axis, exclusive=bool(attr.get("exclusive", 0)))
        )
        return bb.normalize(relax.op.flip(product, axis)) if attr.get("reverse", 0) else product


class ReverseSequence(onnx_frontend.OnnxOpConverter):
    """The first elements in reverse order, as many as a vector says for each of a batch."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        axes = [int(attr.get("time_axis", 0)), int(attr.get("batch_axis", 1))]
        time, batch = (axis % inputs[0].ty.ndim for axis in axes)
        what = f"ReverseSequence {known.name(attr)}"
        if known.extents_of(inputs[0].ty, f"input of {what}")[batch] < 0:
            raise ModelError(f"{what} has an open batch; give its size")

        lookups.check("ReverseSequence", inputs[:2], attr)
        return bb.emit_te(
            backwards(time, batch), *inputs[:2], primfunc_name_hint="reverse_sequence"
        )


def backwards(time: int, batch: int) -> Any:
    """Return what computes data with the first elements along `time` in reverse order.

    `lengths[n]` of them for the n-th of the batch: of `[a, b, c, d]` and 3 it is `[c, b, a, d]`.
    A length above the number of elements counts as that number, one below 0 as 0.
    """

    def reverse(data: Any, lengths: Any, *_: Any) -> Any:
        def at(*index: Any) -> Any:
            length = tirx.min(lengths[index[batch]].astype("int64"), data.shape[time])
            place = index[time].astype("int64")
            other = tirx.if_then_else(place < length, length - 1 - place, place)
            return data[*index[:time], other, *index[time + 1 :]]

        return te.compute(data.shape, at, name="reverse_sequence")

    return reverse


class LpNormalization(onnx_frontend.OnnxOpConverter):
    """Division by the norm, 0 where that is 0."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, axis, power = inputs[0], int(attr.get("axis", -1)), int(attr.get("p", 2))
        if power == 1:
            norm = relax.op.sum(bb.normalize(relax.op.abs(data)), axis, keepdims=True)
        elif power == 2:  # noqa: PLR2004  the only other one that ONNX has
            square = bb.normalize(relax.op.multiply(data, data))
            norm = relax.op.sqrt(bb.normalize(relax.op.sum(square, axis, keepdims=True)))
        else:
            raise ModelError(f"{known.name(attr)} has p = {power}; 1 and 2 are supported")
        norm = bb.normalize(norm)
        none = relax.const(0, data.ty.dtype)
        quotient = bb.normalize(relax.op.divide(data, norm))
        return bb.normalize(relax.op.where(relax.op.equal(norm, none), none, quotient))


class TensorScatter(onnx_frontend.OnnxOpConverter):
    """A cache with new elements over old ones, from a place on that may differ in a batch."""

    @classmethod
    def _impl_v24(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        cache, update = inputs[0], inputs[1]
        axis = int(attr.get("axis", -2)) % cache.ty.ndim
        circular = attr.get("mode", b"linear") == b"circular"

        def scatter(cache: Any, update: Any, *starts: Any) -> Any:
            length, count = int(cache.shape[axis]), int(update.shape[axis])

            def at(*index: Any) -> Any:
                place = index[axis].astype("int64")
                if starts:
                    place = place - starts[0][index[0]].astype("int64")
                if circular:
                    place = tirx.floormod(place, tirx.const(length, "int64"))
                new = tirx.all(place >= 0, place < count)
                return tirx.if_then_else(
                    new, update[*index[:axis], place, *index[axis + 1 :]], cache[index]
                )

            return te.compute(cache.shape, at, name="tensor_scatter")

        starts = [each for each in list(inputs)[2:3] if each is not None]
        return bb.emit_te(scatter, cache, update, *starts, primfunc_name_hint="tensor_scatter")


class TopK(onnx_frontend.TopK):
    """TopK of numbers that TVM does not sort, as others in the same order; NaN is the largest.

    TVM's converter looks for an attribute in opset 10, which has the number as an input.
    """

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, what = inputs[0], f"TopK {known.name(attr)}"
        count = int(known.numbers(inputs[1], params, f"the number of results of {what}").item())
        size = known.extents_of(data.ty, f"input of {what}")[int(attr.get("axis", -1))]
        if count < 0 or 0 <= size < count:
            raise ModelError(f"{what} asks for {count} of {size} elements")
        return ranked(bb, data, attr, count)

    _impl_v11 = _impl_v10


def ranked(bb: Any, data: Any, attr: Any, count: int) -> Any:
    """Return the values and places of TopK; with -1 for `count`, of the whole axis."""
    dtype = str(data.ty.dtype)
    if dtype == "uint64":
        data = bb.normalize(_signed(bb, data))
    elif dtype in AS_SORTED:
        data = bb.normalize(relax.op.astype(data, AS_SORTED[dtype]))
    elif dtype in FLOATS:
        data = bb.normalize(bb.emit_te(ordered, data, primfunc_name_hint="ordered"))
    axis, largest = attr.get("axis", -1), attr.get("largest", 1)
    found = relax.op.topk(data, count, axis, ret_type="both", largest=largest, dtype="int64")
    if dtype not in {*AS_SORTED, *FLOATS}:
        return found
    found = bb.normalize(found)
    values, places = (bb.normalize(relax.TupleGetItem(found, at)) for at in range(2))
    if dtype in FLOATS:
        same = bb.emit_te(restored, values, dtype, primfunc_name_hint="restored")
    else:
        same = _unsigned(bb, values) if dtype == "uint64" else relax.op.astype(values, dtype)
    return relax.Tuple([bb.normalize(same), places])


_OURS = (CumProd, LpNormalization, ReverseSequence, TensorScatter, TopK)
CONVERTERS: Final = {each.__name__: each for each in _OURS}


def _signed(bb: Any, data: Any) -> Any:
    """Return numbers of 64 bits without a sign as signed ones in the same order."""
    return relax.op.bitwise_xor(_same_bits(bb, data, "int64"), relax.const(_LEAST, "int64"))


def _unsigned(bb: Any, data: Any) -> Any:
    """Return what `_signed` was made of."""
    signed = bb.normalize(relax.op.bitwise_xor(data, relax.const(_LEAST, "int64")))
    return _same_bits(bb, signed, "uint64")


def _same_bits(bb: Any, data: Any, dtype: str) -> Any:
    return bb.emit_te(topi.reinterpret, data, dtype, primfunc_name_hint="same_bits")
