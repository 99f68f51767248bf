"""Evaluate ONNX nodes that compute with dynamic sizes."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeGuard

import numpy as np
from onnx import TensorProto, helper
from tvm import tirx

from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    MOST,
    ExactPart,
    Extents,
    as_int64,
    as_scalar_array,
    as_vector_array,
    multiply_sizes,
)
from autopipe.compiler.frontends.onnx.operator import SizeRule
from autopipe.compiler.frontends.onnx.reading.tensors import DTYPES, Array
from autopipe.compiler.frontends.onnx.rewriting.constants import evaluate_node

_FINEST: Final = 2**16
"""Largest numerator and denominator of a fraction that a size is multiplied by."""


def cast_dtype(site: NodeSite) -> str:
    """Return the dtype of a Cast's result."""
    return str(np.dtype(DTYPES[site.attr["to"]][0]))


def _is_part(array: Array | None) -> bool:
    return array is not None and array.size > 0 and isinstance(array.flat[0], ExactPart)


def _apply_pairwise(
    integer_rule: Callable[..., Any], parts: Callable[..., Any] | None = None
) -> SizeRule:
    """Build the rule of a binary operator."""

    def rule(site: NodeSite) -> Array | None:
        first, *operands = site.numbers
        for operand in operands:
            if first is None or operand is None:
                return None
            function = parts if _is_part(first) else integer_rule
            is_mixed = first.size and operand.size and _is_part(first) != _is_part(operand)
            if function is None or is_mixed:
                return None
            first = site.extents.apply(
                lambda a, b, f=function: f(site.extents, a, b), first, operand
            )
        return first

    return rule


def _simplify_result(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda extents, one, other: extents.simple(function(one, other))


def _decide_result(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda extents, one, other: extents.truth(function(one, other))


def _multiply_by_fraction(extents: Extents, number: Size, over: Fraction) -> ExactPart | None:
    """Multiply a number by a fraction; None if the fraction's terms exceed the bound."""
    if max(over.denominator, abs(over.numerator)) > _FINEST:
        return None
    numerator = extents.simple(number * over.numerator)
    return ExactPart(numerator, over.denominator)


def _multiply_parts(extents: Extents, first: ExactPart, second: ExactPart) -> ExactPart | None:
    if isinstance(second.number, int):
        return _multiply_by_fraction(
            extents, first.number, Fraction(second.number, first.over * second.over)
        )
    if isinstance(first.number, int):
        return _multiply_parts(extents, second, first)
    return None


def _divide_parts(extents: Extents, dividend: ExactPart, divisor: ExactPart) -> ExactPart | None:
    if not isinstance(divisor.number, int) or divisor.number <= 0:
        return None
    return _multiply_by_fraction(
        extents, dividend.number, Fraction(divisor.over, dividend.over * divisor.number)
    )


def _take_lesser(first: Size, second: Size) -> Size:
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return tirx.min(as_int64(first), as_int64(second))


def _take_greater(first: Size, second: Size) -> Size:
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return tirx.max(as_int64(first), as_int64(second))


def _find_remainder(extents: Extents, dividend: Size, divisor: Size) -> Size | None:
    if not (extents.truth(dividend >= 0) and extents.truth(divisor > 0)):
        return None
    if isinstance(dividend, int) and isinstance(divisor, int):
        return extents.simple(dividend % divisor)
    return extents.simple(tirx.floormod(as_int64(dividend), as_int64(divisor)))


def cast_numbers(site: NodeSite) -> Array | None:
    """Evaluate Cast of numbers to bool, integers or floats."""
    extents, data, element_type = site.extents, site.numbers[0], site.attr["to"]
    is_float = element_type in (TensorProto.FLOAT, TensorProto.DOUBLE)
    if data is not None and element_type == TensorProto.BOOL and not _is_part(data):
        return extents.apply(lambda one: extents.truth(one != 0), data)
    if data is None or not (is_float or element_type in (TensorProto.INT32, TensorProto.INT64)):
        return None
    if is_float:
        return data if _is_part(data) else extents.apply(_as_part, data)
    return extents.truncated(data) if _is_part(data) else data


def _as_part(number: Size) -> ExactPart:
    return ExactPart(int(number) if isinstance(number, bool) else number)


def _round_numbers(*, up: bool) -> SizeRule:
    def rule(site: NodeSite) -> Array | None:
        extents, data = site.extents, site.numbers[0]
        if data is None or not _is_part(data):
            return None
        sign = -1 if up else 1

        def one(part: ExactPart) -> ExactPart:
            if part.over == 1:
                return part
            return ExactPart(
                extents.simple(tirx.floordiv(part.number * sign, part.over) * sign)
                if not isinstance(part.number, int)
                else (part.number * sign // part.over) * sign
            )

        return extents.apply(one, data)

    return rule


def select_numbers(site: NodeSite) -> Array | None:
    """Evaluate Where with known conditions."""
    return site.extents.apply(lambda condition, yes, no: yes if condition else no, *site.numbers)


def negate_truth(site: NodeSite) -> Array | None:
    """Evaluate Not."""
    return site.extents.apply(lambda truth: not truth, site.numbers[0])


def negate_numbers(site: NodeSite) -> Array | None:
    """Evaluate Neg of integers."""
    simple, data = site.extents.simple, site.numbers[0]
    return None if _is_part(data) else site.extents.apply(lambda n: simple(-n), data)


def move_numbers(site: NodeSite) -> Array | None:
    """Evaluate an operator that only moves elements, such as Gather, at known places.

    The reference implementation of onnx moves the numbers 0, 1, 2, ... in place of the elements.
    """
    moved = site.numbers if site.kind == "Concat" else site.numbers[:1]
    places = site.numbers[len(moved) :]
    arrays = [one for one in moved if one is not None]
    if len(arrays) < len(moved) or len({_is_part(one) for one in arrays if one.size}) > 1:
        return None
    if not all(one is None or _is_fixed(one) for one in places):
        return None
    starts = np.cumsum([0, *(one.size for one in arrays)])
    operands: list[Array | None] = [
        np.arange(first, first + one.size).reshape(one.shape)
        for first, one in zip(starts, arrays, strict=False)
    ]
    operands += [None if one is None else one.astype(np.int64) for one in places]
    names = ["" if one is None else f"in{at}" for at, one in enumerate(operands)]
    attributes = {name: value for name, value in site.attr.items() if name != "tvm_custom"}
    node = helper.make_node(site.kind, names, ["out"], **attributes)
    values = {name: one for name, one in zip(names, operands, strict=True) if one is not None}
    results = evaluate_node(node, values, site.opset)
    if results is None:
        return None
    elements = as_vector_array([element for one in arrays for element in one.flat])
    return _make_array(elements[results["out"]])


def expand_numbers(site: NodeSite) -> Array | None:
    """Evaluate Expand to known sizes."""
    shape = site.numbers[1]
    is_small = _is_fixed(shape) and multiply_sizes(shape.tolist()) <= MOST
    return move_numbers(site) if is_small else None


def take_product(site: NodeSite) -> Array | None:
    """Evaluate ReduceProd of a vector."""
    data, *others = site.numbers
    operand = others[0] if others else None
    axes = site.attr.get("axes", None if operand is None else operand.reshape(-1).tolist())
    if data is None or _is_part(data) or data.ndim != 1 or axes not in (None, [0], [-1]):
        return None
    product = as_scalar_array(site.extents.simple(multiply_sizes(data.tolist())))
    return product.reshape(1) if site.attr.get("keepdims", 1) else product


def pass_on(site: NodeSite) -> Array | None:
    """Evaluate Identity."""
    return site.numbers[0]


def _is_fixed(array: Array | None) -> TypeGuard[Array]:
    return array is not None and all(isinstance(number, int) for number in array.flat)


def _make_array(value: object) -> Array:
    """Convert a number or an array to an object array."""
    return value if isinstance(value, np.ndarray) else as_scalar_array(value)


add_numbers: Final = _apply_pairwise(_simplify_result(lambda a, b: a + b))
subtract_numbers: Final = _apply_pairwise(_simplify_result(lambda a, b: a - b))
multiply_numbers: Final = _apply_pairwise(_simplify_result(lambda a, b: a * b), _multiply_parts)
divide_numbers: Final = _apply_pairwise(lambda extents, a, b: extents.quotient(a, b), _divide_parts)
take_remainder: Final = _apply_pairwise(_find_remainder)
take_minimum: Final = _apply_pairwise(_simplify_result(_take_lesser))
take_maximum: Final = _apply_pairwise(_simplify_result(_take_greater))
is_equal: Final = _apply_pairwise(_decide_result(lambda a, b: a == b))
is_less: Final = _apply_pairwise(_decide_result(lambda a, b: a < b))
is_less_or_equal: Final = _apply_pairwise(_decide_result(lambda a, b: a <= b))
is_greater: Final = _apply_pairwise(_decide_result(lambda a, b: a > b))
is_greater_or_equal: Final = _apply_pairwise(_decide_result(lambda a, b: a >= b))
are_both: Final = _apply_pairwise(lambda _, a, b: bool(a and b))
is_either: Final = _apply_pairwise(lambda _, a, b: bool(a or b))
round_down: Final = _round_numbers(up=False)
round_up: Final = _round_numbers(up=True)
