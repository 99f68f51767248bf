"""NonZero and Compress: elements selected by a condition."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.kernels import find_nonzero_places
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def convert_non_zero(site: NodeSite) -> Expr:
    """Convert NonZero: [rank, count] int64, one column for each element; constants are folded."""
    extents, data = site.extents, site.inputs[0]
    sizes = extents.shape(data, site.label) or [1]
    places = find_nonzero_places(site, data, sizes)
    if len(sizes) == 1:
        return relax.op.reshape(places, to_shape([1, *extents.shape(places, "places")]))

    def compute(places: te.Tensor, *sizes: Sequence[Expr]) -> te.Tensor:
        def at(axis: Expr, place: Expr) -> Expr:
            value, remainder = as_int64(0), places[place]
            for number in reversed(range(len(sizes))):
                value = tirx.if_then_else(
                    axis == number, tirx.floormod(remainder, sizes[number]), value
                )
                remainder = tirx.floordiv(remainder, sizes[number])
            return value

        return te.compute([as_int64(len(sizes)), places.shape[0]], at, name="unravelled")

    return site.bb.emit_te(compute, places, *map(as_int64, sizes), primfunc_name_hint="unravelled")


def convert_compress(site: NodeSite) -> Expr:
    """Convert Compress by a constant or computed condition."""
    extents, label, axis = site.extents, site.label, site.attr.get("axis")
    data, condition = site.inputs[:2]
    if isinstance(condition, GenericConst):
        places = relax.const(np.flatnonzero(condition.value.numpy()), "int64")
        data = relax.op.reshape(data, [-1]) if axis is None else data
        return relax.op.take(data, places, axis or 0)
    sizes = site.read_sizes()
    if axis is None:
        data = site.bb.emit(relax.op.reshape(data, to_shape([multiply_sizes(sizes)])))
        axis, sizes = 0, [multiply_sizes(sizes)]
    condition_sizes = extents.shape(condition, label)
    if extents.truth(condition_sizes[0] <= sizes[int(axis)]) is not True:
        raise ModelError(f"{label}: the condition may be longer than the axis")
    indices = find_nonzero_places(site, condition, condition_sizes)
    return relax.op.take(data, indices, int(axis))


OPERATORS: Final = (
    Operator(
        name="NonZero",
        since=13,
        converter=convert_non_zero,
        deciding=(0,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
    Operator(
        name="Compress",
        since=28,
        converter=convert_compress,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
