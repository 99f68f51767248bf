"""Tile."""

from collections.abc import Sequence
from typing import Final

from tvm import te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import is_open
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import emit_kernel, is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_dynamic_tile(site: NodeSite) -> Expr | None:
    """Convert Tile of dynamic sizes or repeats; None if all are static."""
    if site.numbers[1] is None:
        return None
    sizes, repeats = site.extents.shape(site.inputs[0], site.label), list(site.numbers[1])
    if not is_open([*sizes, *repeats]):
        return None
    output_sizes = [
        site.extents.simple(size * often) for size, often in zip(sizes, repeats, strict=True)
    ]

    def compute(data: te.Tensor, output_sizes: Sequence[Expr]) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            return data[
                tuple(
                    place if is_number(often, 1) else tirx.floormod(place, data.shape[axis])
                    for axis, (place, often) in enumerate(zip(index, repeats, strict=True))
                )
            ]

        return te.compute(output_sizes, at, name="tile")

    return emit_kernel(site.bb, compute, site.inputs[0], output_sizes, "tile")


OPERATORS: Final = (
    Operator(
        name="Tile",
        since=13,
        convert_dynamic=convert_dynamic_tile,
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.EXACT_SPECIALS,
    ),
)
