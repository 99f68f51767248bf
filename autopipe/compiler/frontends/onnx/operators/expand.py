"""Expand and Tile: repetition of elements."""

from collections.abc import Sequence
from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import emit_kernel, is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_dynamic_expand(site: NodeSite) -> Expr | None:
    """Convert Expand; a dimension that may be 1 is compared at run time."""
    extents = site.extents
    if site.numbers[1] is None:
        return None
    sizes, target_sizes = site.read_sizes(), list(site.numbers[1])
    rank = max(len(sizes), len(target_sizes))
    sizes, target_sizes = ([1] * (rank - len(one)) + list(one) for one in (sizes, target_sizes))
    output_sizes = [
        _find_broadcast_size(extents, *pair) for pair in zip(sizes, target_sizes, strict=True)
    ]
    if all(extents.equal(*pair) for pair in zip(sizes, output_sizes, strict=True)):
        data = site.inputs[0]
        return data if data.ty.ndim == rank else relax.op.reshape(data, to_shape(output_sizes))
    return spread_data(extents, site.bb, site.inputs[0], output_sizes)


def _find_broadcast_size(extents: Extents, first: Size, second: Size) -> Size:
    """Return the broadcast size of two dimensions."""
    if is_number(first, 1) or extents.equal(first, second):
        return second
    if is_number(second, 1):
        return first
    for size in (first, second):
        if extents.truth(size != 1):
            return size
    return extents.simple(tirx.max(as_int64(first), as_int64(second)))


def spread_data(
    extents: Extents, bb: BlockBuilder, data: Expr, target_sizes: Sequence[Size]
) -> Expr:
    """Broadcast data to sizes; an axis of one element is repeated."""
    before = extents.shape(data, "the input")
    shift = len(target_sizes) - len(before)

    def compute(data: te.Tensor, target_sizes: Sequence[Expr]) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            places = []
            for axis, size in enumerate(before):
                place = index[shift + axis]
                is_equal = alike[axis]
                if is_number(size, 1):
                    places.append(tirx.const(0, "int64"))
                elif is_equal or extents.truth(size != 1):
                    places.append(place)
                else:
                    places.append(
                        tirx.if_then_else(data.shape[axis] == 1, tirx.const(0, "int64"), place)
                    )
            return data[tuple(places)]

        return te.compute(target_sizes, at, name="spread")

    alike = [extents.equal(size, target_sizes[shift + at]) for at, size in enumerate(before)]
    for size, target in zip(before, target_sizes[shift:], strict=True):  # broadcast, or equal
        why = f"{size} elements do not spread to {target}"
        extents.require(bb, [(size, target), (target, size)], why, [size - 1])
    return emit_kernel(bb, compute, data, target_sizes, "spread")


def convert_dynamic_tile(site: NodeSite) -> Expr | None:
    """Convert Tile of dynamic sizes or repeats; None if all are static."""
    if site.numbers[1] is None:
        return None
    sizes, repeats = site.read_sizes(), list(site.numbers[1])
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
        name="Expand",
        since=13,
        convert_dynamic=convert_dynamic_expand,
        compute_sizes=arithmetic.expand_numbers,
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Tile",
        since=13,
        convert_dynamic=convert_dynamic_tile,
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.EXACT_SPECIALS,
    ),
)
