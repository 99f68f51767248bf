"""Expand: broadcasting to a shape."""

from collections.abc import Sequence
from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Size,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import (
    describe_node,
    emit_kernel,
    is_number,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_dynamic_expand(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Expand; a size that may be 1 is looked at when the model runs."""
    if numbers[1] is None:
        return None
    what = describe_node("Expand", attr)
    sizes, wanted = extents.shape(inputs[0], what), list(numbers[1])
    rank = max(len(sizes), len(wanted))
    sizes, wanted = ([1] * (rank - len(one)) + list(one) for one in (sizes, wanted))
    made = [_find_broadcast_size(extents, *pair) for pair in zip(sizes, wanted, strict=True)]
    if all(extents.equal(*pair) for pair in zip(sizes, made, strict=True)):
        data = inputs[0]
        return data if data.ty.ndim == rank else relax.op.reshape(data, to_shape(made))
    return spread_data(extents, bb, inputs[0], made)


def _find_broadcast_size(extents: Extents, one: Size, other: Size) -> Size:
    """Return the size of two that are broadcast to each other."""
    if is_number(one, 1) or extents.equal(one, other):
        return other
    if is_number(other, 1):
        return one
    for size in (one, other):
        if extents.truth(size != 1):
            return size
    return extents.simple(tirx.max(as_int64(one), as_int64(other)))


def spread_data(extents: Extents, bb: BlockBuilder, data: Expr, wanted: Sequence[Size]) -> Expr:
    """Return data broadcast to sizes; an axis of one element repeats it."""
    before = extents.shape(data, "the input")
    shift = len(wanted) - len(before)

    def compute(data: te.Tensor, wanted: Sequence[Expr]) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            places = []
            for axis, size in enumerate(before):
                place = index[shift + axis]
                same = alike[axis]
                if is_number(size, 1):
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
    return emit_kernel(bb, compute, data, wanted, "spread")


OPERATORS: Final = (
    Operator(
        name="Expand",
        since=13,
        converter=onnx_frontend.Expand,
        convert_dynamic=convert_dynamic_expand,
        compute_sizes=arithmetic.expand_numbers,
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE | Trait.MOVES_ELEMENTS | Trait.EXACT_SPECIALS,
    ),
)
