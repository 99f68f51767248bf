"""Errors between arrays, and the layout in which a kernel holds a value of the model."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

import numpy as np

from autopipe.bisection.bisection import CallDifference

_TOLERANCE: Final = {"float32": 1e-3, "float64": 1e-3}
"""Largest error of a value inside of a model, relative to the largest value."""
_COARSE: Final = 5e-2
"""The same for other types, and where a build rounds to bfloat16."""
_AXES: Final = 5
"""Axes longer than 1 of which all orders are tried."""


def measure_difference(
    expected_arrays: Sequence[np.ndarray],
    actual_arrays: Sequence[np.ndarray],
    *,
    coarse: bool = False,
) -> CallDifference:
    """Compute the largest errors of outputs, and whether they are within tolerance."""
    dtypes = {str(array.dtype) for array in expected_arrays}
    tolerance = max((_TOLERANCE.get(dtype, _COARSE) for dtype in dtypes), default=_COARSE)
    errors = [_compute_errors(*pair) for pair in zip(expected_arrays, actual_arrays, strict=True)]
    largest = max((one for one, _ in errors), default=0.0)
    relative = max((one for _, one in errors), default=0.0)
    agrees = relative <= (_COARSE if coarse else tolerance)
    reason = None if agrees else f"off by up to {largest:.3g}, {relative:.3g} of the largest value"
    return CallDifference(
        agrees=agrees, max_abs=_to_finite(largest), max_rel=_to_finite(relative), reason=reason
    )


def measure_value(
    value: np.ndarray, actual: np.ndarray, *, coarse: bool = False
) -> tuple[CallDifference, np.ndarray] | None:
    """Compare an output of a kernel with a value of the model in every layout of equal shape.

    Returns the smallest difference, and the value in that layout; None where none fits.
    """
    best: tuple[CallDifference, np.ndarray] | None = None
    for laid_out in _list_transposed(value, actual.shape):
        difference = measure_difference([laid_out], [actual], coarse=coarse)
        if best is None or _find_error_size(difference) < _find_error_size(best[0]):
            best = difference, laid_out
        if difference.agrees:
            return best
    if best is None and value.size == actual.size:
        flat = value.reshape(actual.shape)
        difference = measure_difference([flat], [actual], coarse=coarse)
        return (difference, flat) if difference.agrees else None  # it may be in any order
    return best


def _list_transposed(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the transpositions of an array that have a shape, ignoring axes of size 1."""
    target_shape = tuple(size for size in shape if size != 1)
    squeezed_value = value.squeeze()
    if sorted(squeezed_value.shape) != sorted(target_shape):
        return
    if squeezed_value.ndim > _AXES:
        if squeezed_value.shape == target_shape:
            yield squeezed_value.reshape(shape)
        return
    for order in permutations(range(squeezed_value.ndim)):
        transposed = squeezed_value.transpose(order)
        if transposed.shape == target_shape:
            yield transposed.reshape(shape)


def _compute_errors(expected_array: np.ndarray, actual_array: np.ndarray) -> tuple[float, float]:
    """Return the largest error, and the same relative to the largest expected value."""
    if expected_array.shape != actual_array.shape:
        return float("inf"), float("inf")
    expected, actual = (array.astype(np.float64) for array in (expected_array, actual_array))
    finite = np.isfinite(expected)
    with np.errstate(all="ignore"):
        equal = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
        error = np.where(equal, 0.0, np.abs(expected - actual))
    error[~np.isfinite(error)] = np.inf
    largest = float(error.max(initial=0.0))
    scale = float(np.abs(expected[finite]).max(initial=0.0))
    return largest, largest / scale if scale else (float("inf") if largest else 0.0)


def _find_error_size(difference: CallDifference) -> float:
    return float("inf") if difference.max_abs is None else difference.max_abs


def _to_finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
