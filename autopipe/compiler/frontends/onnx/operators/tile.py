"""Tile."""

from collections.abc import Sequence
from typing import Final

from tvm import te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import (
    describe_node,
    emit_kernel,
    is_number,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_dynamic_tile(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Tile of dynamic sizes or repeats; None if all are static."""
    if numbers[1] is None:
        return None
    sizes, repeats = extents.shape(inputs[0], describe_node("Tile", attr)), list(numbers[1])
    if not is_open([*sizes, *repeats]):
        return None
    output_sizes = [
        extents.simple(size * often) for size, often in zip(sizes, repeats, strict=True)
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

    return emit_kernel(bb, compute, inputs[0], output_sizes, "tile")


OPERATORS: Final = (
    Operator(
        name="Tile",
        since=13,
        converter=onnx_frontend.Tile,
        convert_dynamic=convert_dynamic_tile,
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.EXACT_SPECIALS,
    ),
)
