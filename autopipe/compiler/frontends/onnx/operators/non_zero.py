"""NonZero: the indices of nonzero elements."""

from collections.abc import Sequence
from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, to_shape
from autopipe.compiler.frontends.onnx.dynamic_sizes.nonzero_places import find_nonzero_places
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


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


OPERATORS: Final = (
    Operator(
        name="NonZero",
        since=13,
        converter=convert_non_zero,
        deciding=(0,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
