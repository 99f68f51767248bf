"""OneHot as ONNX defines it, of a depth that is known or computed."""

from typing import Any

from tvm import relax

# ruff: noqa: ANN401  TVM's converters have no types


def compute_one_hot(bb: Any, inputs: Any, attr: Any, depth: Any, row: Any) -> Any:
    """Return the second of two values at the index along a new axis, and the first elsewhere.

    `depth` is a scalar of int64, and `row` the numbers below it. An index counts from the end if it
    is negative; one that is outside of the axis leaves the first value everywhere.
    """
    places = bb.normalize(relax.op.astype(inputs[0], "int64"))
    negative = bb.normalize(relax.op.less(places, relax.const(0, "int64")))
    counted = bb.normalize(relax.op.add(places, depth))
    places = bb.normalize(relax.op.where(negative, counted, places))
    rank = places.ty.ndim + 1
    axis = int(attr.get("axis", -1)) % rank
    behind = list(range(1, rank - axis))
    row = bb.normalize(relax.op.expand_dims(row, behind)) if behind else row
    hot = relax.op.equal(bb.normalize(relax.op.expand_dims(places, axis)), row)
    off, on = (relax.op.take(inputs[2], relax.const(at, "int64"), 0) for at in range(2))
    return relax.op.where(bb.normalize(hot), bb.normalize(on), bb.normalize(off))
