"""Compare the results of a schedule with its unscheduled loops, within their own rounding."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import tvm
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import find_nodes

_TOLERANCE: Final = {"bfloat16": 5e-2, "float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
"""Largest difference relative to the largest value; sums are taken in another order."""

_ROUNDING: Final = {"float32": 2.0**-24, "float64": 2.0**-53}
"""Largest rounding error of an addition, relative to the sum."""

_PART: Final = 1 << 14
"""Elements of arrays that are compared at once."""

_WAVERING: Final = 4.0
"""Roundings inside a function, against those of its inputs."""


def find_difference(
    results: tuple[list[np.ndarray], list[np.ndarray], list[list[np.ndarray]]],
    terms: int,
    *,
    bits: bool,
) -> str | None:
    """Return the difference of a schedule if it exceeds the rounding of the unscheduled loops.

    `results` are those of the unscheduled loops, of the schedule, and of the unscheduled loops with
    some roundings: where terms cancel, as in 1 + x for an x near -1, these differ as much. A
    sequential sum of `terms` rounds as often: 255744 squares are off by 0.1 %. Integers that are
    `bits` of floats change with them.
    """
    for plain_result, scheduled_result, *perturbed_results in zip(
        *results[:2], *results[2], strict=True
    ):
        steady = plain_result.copy()
        if plain_result.dtype.kind == "f":
            steady[~np.isfinite(perturbed_results).all(axis=0)] = np.nan
        rounding = _find_max_abs(steady) * terms * _ROUNDING.get(str(plain_result.dtype), 0.0)
        perturbation = max(_compute_max_difference(steady, other) for other in perturbed_results)
        close = _is_within_tolerance(
            steady, scheduled_result, max(rounding, _WAVERING * perturbation), bits=bits
        )
        if not close and not any(
            _is_within_step(plain_result, scheduled_result, other) for other in perturbed_results
        ):
            return f"{_compute_max_difference(steady, scheduled_result):.2g}"
    return None


def count_terms(function: tvm.tirx.PrimFunc) -> int:
    """Count the terms of the longest sum of a function with static shapes."""
    blocks = find_nodes(function.body, SBlock)
    return max((math.prod(_list_reduced_extents(block)) for block in blocks), default=1)


def _list_reduced_extents(block: SBlock) -> Iterator[int]:
    """Yield the static extents of a block's reduction axes."""
    for axis in block.iter_vars:
        is_static = isinstance(axis.dom.extent, tvm.tirx.IntImm)
        if is_static and axis.iter_type == tvm.tirx.IterVar.CommReduce:
            yield int(axis.dom.extent)


def _is_within_step(expected: np.ndarray, actual: np.ndarray, perturbed_result: np.ndarray) -> bool:
    """Whether integers differ by at most 1, and in about as many places as `perturbed_result`."""
    if expected.dtype.kind not in "iu" or _compute_max_difference(expected, actual) > 1:
        return False
    differing, wavering = ((expected != other).sum() for other in (actual, perturbed_result))
    return bool(differing <= _WAVERING * wavering)


def all_agree(expected: list[np.ndarray], actual: list[np.ndarray]) -> bool:
    """Whether all results of a call agree with those of its unscheduled loops."""
    return all(
        _is_within_tolerance(right, ours, 0.0) for right, ours in zip(expected, actual, strict=True)
    )


def _is_within_tolerance(
    expected: np.ndarray,
    actual: np.ndarray,
    slack: float,
    *,
    bits: bool = False,
) -> bool:
    if expected is actual or np.array_equal(expected, actual):
        return True
    tolerance = _TOLERANCE.get(str(expected.dtype), 0.0 if bits else None)
    if tolerance is None:
        return False
    largest, difference = _measure_difference(expected, actual)
    return difference <= tolerance * largest + slack and difference < math.inf


def _find_max_abs(expected: np.ndarray) -> float:
    """Return the largest finite value."""
    return _measure_difference(expected, expected)[0]


def _compute_max_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the largest difference among finite expected values; others do not count."""
    return _measure_difference(expected, actual)[1]


def _measure_difference(expected: np.ndarray, actual: np.ndarray) -> tuple[float, float]:
    """Return the largest finite expected value, and the largest difference from one.

    The difference is NaN if one of these is NaN in `actual`. Arrays are compared in parts that stay
    in the caches, which is several times as fast.
    """
    flat_expected, flat_actual = expected.reshape(-1), actual.reshape(-1)
    measured = np.zeros(2)
    for start in range(0, expected.size, _PART):
        right, ours = (flat[start : start + _PART] for flat in (flat_expected, flat_actual))
        finite = np.isfinite(right)
        if not finite.all():
            right, ours = right[finite], ours[finite]
        values = right.astype("float64")
        largest = np.max(np.abs(values), initial=0.0)
        difference = np.max(np.abs(values - ours.astype("float64")), initial=0.0)
        np.maximum(measured, (largest, difference), out=measured)
    return float(measured[0]), float(measured[1])
