"""Nodes that compute numbers of open sizes, as ONNX defines them."""

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
"""Largest parts of a fraction that a size is multiplied by."""


def evaluate_node(
    extents: Extents,
    operator: Operator,
    numbers: Numbers,
    dtypes: Sequence[str],
    attr: Attributes,
) -> tuple[Array, str] | None:
    """Return what a node computes of numbers, and its dtype; None where that is not known.

    An input that is left out is None. All others are known.
    """
    if operator.compute_sizes is None or not numbers or numbers[0] is None:
        return None
    made = operator.compute_sizes(extents, numbers, attr)
    if made is None or made.size > MOST:
        return None
    return made, operator.size_dtype(dtypes, attr)


def cast_dtype(dtypes: Sequence[str], attr: Attributes) -> str:
    """Return the dtype that a Cast makes."""
    return str(np.dtype(DTYPES[attr["to"]][0]))


def choose_bool_dtype(dtypes: Sequence[str], attr: Attributes) -> str:
    """Return the dtype of truth values."""
    return "bool"


def choose_second_dtype(dtypes: Sequence[str], attr: Attributes) -> str:
    """Return the dtype of the second input."""
    return dtypes[1]


def _is_part(array: Array | None) -> bool:
    return array is not None and array.size > 0 and isinstance(array.flat[0], ExactPart)


def _apply_pairwise(whole: Callable[..., Any], parts: Callable[..., Any] | None = None) -> SizeRule:
    """Return the rule of an operator on two numbers."""

    def rule(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
        first, *others = numbers
        for other in others:
            if first is None or other is None:
                return None
            function = parts if _is_part(first) else whole
            if function is None or (
                first.size and other.size and _is_part(first) != _is_part(other)
            ):
                return None
            first = extents.apply(lambda a, b, f=function: f(extents, a, b), first, other)
        return first

    return rule


def _simplify_result(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda extents, one, other: extents.simple(function(one, other))


def _decide_result(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda extents, one, other: extents.truth(function(one, other))


def _multiply_by_fraction(extents: Extents, number: Size, over: Fraction) -> ExactPart | None:
    """Return a number times a fraction, None where that has too many digits."""
    if max(over.denominator, abs(over.numerator)) > _FINEST:
        return None
    made = extents.simple(number * over.numerator)
    return ExactPart(made, over.denominator)


def _multiply_parts(extents: Extents, one: ExactPart, other: ExactPart) -> ExactPart | None:
    if isinstance(other.number, int):
        return _multiply_by_fraction(
            extents, one.number, Fraction(other.number, one.over * other.over)
        )
    if isinstance(one.number, int):
        return _multiply_parts(extents, other, one)
    return None


def _divide_parts(extents: Extents, one: ExactPart, other: ExactPart) -> ExactPart | None:
    if not isinstance(other.number, int) or other.number <= 0:
        return None
    return _multiply_by_fraction(extents, one.number, Fraction(other.over, one.over * other.number))


def _take_lesser(one: Size, other: Size) -> Size:
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return tirx.min(as_int64(one), as_int64(other))


def _take_greater(one: Size, other: Size) -> Size:
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return tirx.max(as_int64(one), as_int64(other))


def _find_remainder(extents: Extents, one: Size, other: Size) -> Size | None:
    if not (extents.truth(one >= 0) and extents.truth(other > 0)):
        return None
    if isinstance(one, int) and isinstance(other, int):
        return extents.simple(one % other)
    return extents.simple(tirx.floormod(as_int64(one), as_int64(other)))


def cast_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Cast of numbers to truth values, integers or floats."""
    data, wanted = numbers[0], attr["to"]
    floats = wanted in (TensorProto.FLOAT, TensorProto.DOUBLE)
    if data is not None and wanted == TensorProto.BOOL and not _is_part(data):
        return extents.apply(lambda one: extents.truth(one != 0), data)
    if data is None or not (floats or wanted in (TensorProto.INT32, TensorProto.INT64)):
        return None
    if floats:
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
    """Compute Where the conditions are known."""
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers):
        return None
    return extents.apply(lambda condition, yes, no: yes if condition else no, *known)


def negate_truth(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Not."""
    data = numbers[0]
    return None if data is None else extents.apply(lambda truth: not truth, data)


def negate_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Neg of whole numbers."""
    data = numbers[0]
    if data is None or _is_part(data):
        return None
    return extents.apply(lambda one: extents.simple(-one), data)


def gather_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Gather at places that are known."""
    data, places = numbers
    if data is None or data.ndim == 0 or not _is_fixed(places):
        return None
    return _make_array(np.take(data, places.astype("int64"), attr.get("axis", 0)))


def slice_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Slice from and to places that are known."""
    data, *given = [*numbers, None, None, None, None][:5]
    if "starts" in attr:
        given = [
            np.array(attr[name]) if name in attr else None for name in ("starts", "ends", "axes")
        ]
        given.append(None)
    starts, ends, axes, steps = given
    if data is None or starts is None or ends is None:
        return None
    if not all(one is None or _is_fixed(one) for one in given):
        return None
    count = starts.size
    along = range(count) if axes is None else axes.reshape(-1).tolist()
    by = [1] * count if steps is None else steps.reshape(-1).tolist()
    for start, end, axis, step in zip(starts.flat, ends.flat, along, by, strict=True):
        whole = [slice(None)] * data.ndim
        size = data.shape[int(axis)]
        stop = None if step < 0 and end < -size else int(end)
        whole[int(axis)] = slice(int(start), stop, int(step))
        data = data[tuple(whole)]
    return data


def concatenate_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Concat of numbers of one kind."""
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers) or len({_is_part(one) for one in known if one.size}) > 1:
        return None
    return np.concatenate(known, attr["axis"])


def _read_axes(numbers: Numbers, attr: Attributes) -> tuple[int, ...] | None:
    given = attr.get("axes", numbers[1] if len(numbers) > 1 else None)
    return None if given is None else tuple(int(axis) for axis in np.asarray(given).reshape(-1))


def squeeze_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Squeeze."""
    data = numbers[0]
    return None if data is None else _make_array(np.squeeze(data, _read_axes(numbers, attr)))


def unsqueeze_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Unsqueeze."""
    data = numbers[0]
    return None if data is None else np.expand_dims(data, _read_axes(numbers, attr) or ())


def reshape_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Reshape to sizes that are known."""
    data, shape = numbers
    if data is None or not _is_fixed(shape):
        return None
    return data.reshape([one or data.shape[at] for at, one in enumerate(shape)])


def expand_numbers(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Expand to sizes that are known."""
    data, shape = numbers
    if data is None or not _is_fixed(shape) or multiply_sizes(shape.tolist()) > MOST:
        return None
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))


def take_product(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute ReduceProd of a list."""
    data, axes = numbers[0], _read_axes(numbers, attr)
    if data is None or _is_part(data) or data.ndim != 1 or axes not in (None, (0,), (-1,)):
        return None
    made = _make_array(extents.simple(multiply_sizes(data.tolist())))
    return made.reshape(1) if attr.get("keepdims", 1) else made


def pass_on(extents: Extents, numbers: Numbers, attr: Attributes) -> Array | None:
    """Compute Identity."""
    return numbers[0]


def _is_fixed(array: Array | None) -> TypeGuard[Array]:
    return array is not None and all(isinstance(number, int) for number in array.flat)


def _make_array(value: object) -> Array:
    """Return a number or an array as an array of objects."""
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
