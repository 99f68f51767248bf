"""NonZero: the indices of nonzero elements."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, to_shape
from autopipe.compiler.frontends.onnx.dynamic_sizes.nonzero_places import find_nonzero_places
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_non_zero(site: NodeSite) -> Expr:
    """Convert NonZero of a constant."""
    data = site.require_constant(0)
    places = np.stack(np.nonzero(np.atleast_1d(data)))
    return relax.const(places.astype("int64"), "int64")


def convert_dynamic_non_zero(site: NodeSite) -> Expr | None:
    """Convert NonZero of computed data: [rank, count] int64, one column for each element."""
    extents = site.extents
    data = site.inputs[0]
    if isinstance(data, ir.GenericConst):
        return None
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


OPERATORS: Final = (
    Operator(
        name="NonZero",
        since=13,
        converter=convert_non_zero,
        convert_dynamic=convert_dynamic_non_zero,
        deciding=(0,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
