"""Evaluate ONNX nodes that compute with dynamic sizes."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, TypeGuard

import numpy as np
from onnx import TensorProto
from tvm import tirx

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Numbers, Size
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    MOST,
    ExactPart,
    Extents,
    as_int64,
    as_scalar_array,
    multiply_sizes,
)
from autopipe.compiler.frontends.onnx.operator import Operator, SizeRule
from autopipe.compiler.frontends.onnx.reading.tensors import DTYPES, Array

# ruff: noqa: ARG001  all rules have one signature

_FINEST: Final = 2**16
"""Largest numerator and denominator of a fraction that a size is multiplied by."""


def evaluate_node(
    extents: Extents,
    operator: Operator,
    numbers: Numbers,
    dtypes: Sequence[str],
    attr: Attributes,
) -> tuple[Array, str] | None:
    """Evaluate a node of numbers to (result, dtype); None if that is not supported.

    An absent input is None. All others are known.
    """
    if operator.compute_sizes is None or not numbers or numbers[0] is None:
        return None
    result = operator.compute_sizes(extents, numbers, attr)
    if result is None or result.size > MOST:
        return None
    return result, operator.size_dtype(dtypes, attr)


def cast_dtype(dtypes: Sequence[str], attr: Attributes) -> str:
    """Return the dtype of a Cast's result."""
    return str(np.dtype(DTYPES[attr["to"]][0]))


def choose_bool_dtype(dtypes: Sequence[str], attr: Attributes) -> str:
    """Return the dtype of logical results."""
    return "bool"


def choose_second_dtype(dtypes: Sequence[str], attr: Attributes) -> str:
    """Return the dtype of the second input."""
    return dtypes[1]


def _is_part(array: Array | None) -> bool:
    return array is not None and array.size > 0 and isinstance(array.flat[0], ExactPart)


def _apply_pairwise(
    integer_rule: Callable[..., Any], parts: Callable[..., Any] | None = None
) -> SizeRule:
    """Build the rule of a binary operator."""

    def rule(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
        first, *operands = numbers
        for operand in operands:
            if first is None or operand is None:
                return None
            function = parts if _is_part(first) else integer_rule
            is_mixed = first.size and operand.size and _is_part(first) != _is_part(operand)
            if function is None or is_mixed:
                return None
            first = extents.apply(lambda a, b, f=function: f(extents, a, b), first, operand)
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


def cast_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Cast of numbers to bool, integers or floats."""
    data, element_type = numbers[0], attr["to"]
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
    def rule(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
        data = numbers[0]
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


def select_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Where with known conditions."""
    return extents.apply(lambda condition, yes, no: yes if condition else no, *numbers)


def negate_truth(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Not."""
    return extents.apply(lambda truth: not truth, numbers[0])


def negate_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Neg of integers."""
    return None if _is_part(numbers[0]) else extents.apply(lambda n: extents.simple(-n), numbers[0])


def gather_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Gather at known indices."""
    data, places = numbers
    if data is None or data.ndim == 0 or not _is_fixed(places):
        return None
    return _make_array(np.take(data, places.astype("int64"), attr.get("axis", 0)))


def slice_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Slice with known starts and ends."""
    data, *slice_inputs = [*numbers, None, None, None, None][:5]
    if "starts" in attr:
        slice_inputs = [
            np.array(attr[name]) if name in attr else None for name in ("starts", "ends", "axes")
        ]
        slice_inputs.append(None)
    starts, ends, axes, steps = slice_inputs
    if data is None or starts is None or ends is None:
        return None
    if not all(one is None or _is_fixed(one) for one in slice_inputs):
        return None
    count = starts.size
    sliced_axes = range(count) if axes is None else axes.reshape(-1).tolist()
    strides = [1] * count if steps is None else steps.reshape(-1).tolist()
    for start, end, axis, step in zip(starts.flat, ends.flat, sliced_axes, strides, strict=True):
        slices = [slice(None)] * data.ndim
        size = data.shape[int(axis)]
        stop = None if step < 0 and end < -size else int(end)
        slices[int(axis)] = slice(int(start), stop, int(step))
        data = data[tuple(slices)]
    return data


def concatenate_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Concat of numbers of one kind."""
    operands = [one for one in numbers if one is not None]
    if len(operands) < len(numbers) or len({_is_part(one) for one in operands if one.size}) > 1:
        return None
    return np.concatenate(operands, attr["axis"])


def _read_axes(numbers: Numbers, attr: Attributes) -> tuple[int, ...] | None:
    axes = attr.get("axes", numbers[1] if len(numbers) > 1 else None)
    return None if axes is None else tuple(int(axis) for axis in np.asarray(axes).reshape(-1))


def squeeze_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Squeeze."""
    data = numbers[0]
    return None if data is None else _make_array(np.squeeze(data, _read_axes(numbers, attr)))


def unsqueeze_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Unsqueeze."""
    data = numbers[0]
    return None if data is None else np.expand_dims(data, _read_axes(numbers, attr) or ())


def reshape_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Reshape to known sizes."""
    data, shape = numbers
    if data is None or not _is_fixed(shape):
        return None
    return data.reshape([one or data.shape[at] for at, one in enumerate(shape)])


def expand_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Expand to known sizes."""
    data, shape = numbers
    if data is None or not _is_fixed(shape) or multiply_sizes(shape.tolist()) > MOST:
        return None
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))


def take_product(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate ReduceProd of a vector."""
    data, axes = numbers[0], _read_axes(numbers, attr)
    if data is None or _is_part(data) or data.ndim != 1 or axes not in (None, (0,), (-1,)):
        return None
    product = _make_array(extents.simple(multiply_sizes(data.tolist())))
    return product.reshape(1) if attr.get("keepdims", 1) else product


def pass_on(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Evaluate Identity."""
    return numbers[0]


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
