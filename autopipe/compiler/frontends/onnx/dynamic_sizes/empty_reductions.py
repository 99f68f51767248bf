"""Reductions over axes that may have size 0.

TVM starts a sum with its first term, so an empty sum is undefined. ONNX defines it: 0 for a sum, 1
for a product, the lowest number for a maximum. An empty mean is undefined in ONNX, and 0 in
onnxruntime. ArgMax and ArgMin of no elements return index 0 here.
"""

import math

from tvm import ir, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Inputs, Size
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def guard_empty_reduction(
    extents: Extents, bb: BlockBuilder, operator: Operator, result: Expr, inputs: Inputs
) -> Expr:
    """Guard the result of a reduction against reduced axes of size 0.

    Raises ModelError for an operator with an undefined empty result.
    """
    empty_result, is_refused = operator.empty_result, operator.has(Trait.REFUSES_NO_ROWS)
    if empty_result is None and not is_refused:
        return result
    result_sizes = _list_sizes(extents, result)
    reduced_sizes = [
        size
        for value in inputs
        if not isinstance(value, ir.GenericConst)  # nonempty, or the axes
        for size in _list_sizes(extents, value)
        if extents.bounds(size)[0] <= 0
        and not any(extents.equal(size, other) for other in result_sizes)
    ]
    if not reduced_sizes:
        return result
    if empty_result is None:
        raise ModelError(f"{operator.name} adds up rows of which there may be none")
    dtype = str(result.ty.dtype)
    number = _make_number(empty_result, dtype)

    def compute(result: te.Tensor, *sizes: Expr) -> te.Tensor:
        is_nonempty = tirx.all(*(size > 0 for size in sizes))
        return te.compute(
            result.shape,
            lambda *at: tirx.if_then_else(is_nonempty, result[at], number),
            name="some",
        )

    return bb.emit_te(compute, result, *reduced_sizes, primfunc_name_hint="some")


def _make_number(value: float, dtype: str) -> Expr:
    """Create a constant; in an integer dtype, infinity becomes the extreme integer."""
    if math.isinf(value) and not dtype.startswith("float"):
        return tirx.max_value(dtype) if value > 0 else tirx.min_value(dtype)
    return tirx.const(value, dtype)


def _list_sizes(extents: Extents, value: Expr | None) -> list[Size]:
    """Return the sizes of a tensor; [] if they are unknown."""
    sizes = None if value is None else operand_facts.read_sizes(value.ty)
    return list(map(extents.simple, sizes or ()))
