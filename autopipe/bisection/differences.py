"""How far arrays are apart, and in which layout a kernel holds a value of the model."""

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
    expected: Sequence[np.ndarray], found: Sequence[np.ndarray], *, coarse: bool = False
) -> CallDifference:
    """Return how far outputs are from what is expected, and whether that is little."""
    dtypes = {str(array.dtype) for array in expected}
    allowed = max((_TOLERANCE.get(dtype, _COARSE) for dtype in dtypes), default=_COARSE)
    errors = [_compute_errors(*pair) for pair in zip(expected, found, strict=True)]
    largest = max((one for one, _ in errors), default=0.0)
    relative = max((one for _, one in errors), default=0.0)
    agrees = relative <= (_COARSE if coarse else allowed)
    reason = None if agrees else f"off by up to {largest:.3g}, {relative:.3g} of the largest value"
    return CallDifference(
        agrees=agrees, max_abs=_to_finite(largest), max_rel=_to_finite(relative), reason=reason
    )


def measure_value(
    value: np.ndarray, found: np.ndarray, *, coarse: bool = False
) -> tuple[CallDifference, np.ndarray] | None:
    """Compare an output of a kernel with a value of the model in all layouts that it may have.

    Returns the smallest difference, and the value in that layout; None where none fits.
    """
    best: tuple[CallDifference, np.ndarray] | None = None
    for laid_out in _list_transposed(value, found.shape):
        difference = measure_difference([laid_out], [found], coarse=coarse)
        if best is None or _find_error_size(difference) < _find_error_size(best[0]):
            best = difference, laid_out
        if difference.agrees:
            return best
    if best is None and value.size == found.size:
        flat = value.reshape(found.shape)
        difference = measure_difference([flat], [found], coarse=coarse)
        return (difference, flat) if difference.agrees else None  # it may be in any order
    return best


def _list_transposed(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield an array in all orders of its axes in which it has a shape, but for axes of 1."""
    wanted = tuple(size for size in shape if size != 1)
    squeezed = value.squeeze()
    if sorted(squeezed.shape) != sorted(wanted):
        return
    if squeezed.ndim > _AXES:
        if squeezed.shape == wanted:
            yield squeezed.reshape(shape)
        return
    for order in permutations(range(squeezed.ndim)):
        turned = squeezed.transpose(order)
        if turned.shape == wanted:
            yield turned.reshape(shape)


def _compute_errors(expected: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Return the largest error, and the same relative to the largest expected value."""
    if expected.shape != found.shape:
        return float("inf"), float("inf")
    theirs, ours = (array.astype(np.float64) for array in (expected, found))
    known = np.isfinite(theirs)
    with np.errstate(all="ignore"):
        same = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))
        error = np.where(same, 0.0, np.abs(theirs - ours))
    error[~np.isfinite(error)] = np.inf
    largest = float(error.max(initial=0.0))
    scale = float(np.abs(theirs[known]).max(initial=0.0))
    return largest, largest / scale if scale else (float("inf") if largest else 0.0)


def _find_error_size(difference: CallDifference) -> float:
    return float("inf") if difference.max_abs is None else difference.max_abs


def _to_finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
