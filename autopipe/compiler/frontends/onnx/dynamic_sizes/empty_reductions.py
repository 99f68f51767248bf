"""Reductions over axes that may have no elements.

TVM starts a sum with its first term, so an empty sum has no value. ONNX has one: 0 for a sum,
1 for a product, the smallest number for a maximum. A mean it leaves open; onnxruntime has 0.
ArgMax and ArgMin of no elements have no index; it is 0 here.
"""

import math

from tvm import ir, relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Inputs, Size
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def guard_empty_reduction(
    extents: Extents, bb: BlockBuilder, operator: Operator, made: Expr, inputs: Inputs
) -> Expr:
    """Return the result of a node, defined also where a reduced axis has no elements.

    Raises ModelError for an operator whose result would not be defined.
    """
    empty_result, is_refused = operator.empty_result, operator.has(Trait.REFUSES_NO_ROWS)
    if empty_result is None and not is_refused:
        return made
    kept = _list_sizes(extents, made)
    reduced = [
        size
        for value in inputs
        if not isinstance(value, ir.GenericConst)  # it has elements, or lists axes
        for size in _list_sizes(extents, value)
        if extents.bounds(size)[0] <= 0 and not any(extents.equal(size, other) for other in kept)
    ]
    if not reduced:
        return made
    if empty_result is None:
        raise ModelError(f"{operator.name} adds up rows of which there may be none")
    dtype = str(made.ty.dtype)
    number = _make_number(empty_result, dtype)

    def compute(made: te.Tensor, *sizes: Expr) -> te.Tensor:
        some = tirx.all(*(size > 0 for size in sizes))
        return te.compute(
            made.shape, lambda *at: tirx.if_then_else(some, made[at], number), name="some"
        )

    return bb.emit_te(compute, made, *reduced, primfunc_name_hint="some")


def _make_number(value: float, dtype: str) -> Expr:
    """Return a constant; infinity as the largest or smallest integer of an integer dtype."""
    if math.isinf(value) and not dtype.startswith("float"):
        return tirx.max_value(dtype) if value > 0 else tirx.min_value(dtype)
    return tirx.const(value, dtype)


def _list_sizes(extents: Extents, value: Expr) -> list[Size]:
    """Return the sizes of a tensor; an empty list where they are unknown."""
    if not isinstance(getattr(value, "ty", None), relax.TensorType):
        return []
    return [extents.simple(size) for size in getattr(value.ty.shape, "values", None) or ()]
