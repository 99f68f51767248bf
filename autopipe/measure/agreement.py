"""Whether results of a schedule agree with those of its plain loops, as far as these hold."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import tvm
import tvm_ffi
from tvm.s_tir import SBlock

_TOLERANCE: Final = {"bfloat16": 5e-2, "float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
"""Largest difference relative to the largest value; sums are taken in another order."""

_ROUNDING: Final = {"float32": 2.0**-24, "float64": 2.0**-53}
"""What an addition rounds off at most, relative to the sum."""

_WAVERING: Final = 4.0
"""Roundings inside a function, against those of its inputs."""


def find_difference(
    results: tuple[list[np.ndarray], list[np.ndarray], list[list[np.ndarray]]],
    terms: int,
    *,
    bits: bool,
) -> str | None:
    """Return how far a schedule is off, unless the plain loops themselves cannot hold that.

    `results` are those of the plain loops, of the schedule, and of the plain loops with some
    roundings: where terms cancel, as in 1 + x for an x near -1, these move as far. A sum of that
    many `terms` one after the other rounds as often: 255744 squares are off by 0.1 %. Integers that
    are `bits` of floats move with them.
    """
    for right, ours, *others in zip(*results[:2], *results[2], strict=True):
        steady = right.copy()
        if right.dtype.kind == "f":
            steady[~np.isfinite(others).all(axis=0)] = np.nan
        rounded = _find_max_abs(steady) * terms * _ROUNDING.get(str(right.dtype), 0.0)
        moved = max(_compute_max_difference(steady, other) for other in others)
        close = _is_within_tolerance(steady, ours, max(rounded, _WAVERING * moved), bits=bits)
        if not close and not any(_is_within_step(right, ours, other) for other in others):
            return f"{_compute_max_difference(steady, ours):.2g}"
    return None


def count_terms(function: tvm.tirx.PrimFunc) -> int:
    """Return how many terms the longest sum of a function has, whose sizes are known."""
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(function.body, (SBlock, blocks.append))
    return max((math.prod(_list_reduced_extents(block)) for block in blocks), default=1)


def _list_reduced_extents(block: SBlock) -> Iterator[int]:
    """Yield the extents of what a block reduces, as far as they are known."""
    for axis in block.iter_vars:
        known = isinstance(axis.dom.extent, tvm.tirx.IntImm)
        if known and axis.iter_type == tvm.tirx.IterVar.CommReduce:
            yield int(axis.dom.extent)


def _is_within_step(expected: np.ndarray, found: np.ndarray, moved: np.ndarray) -> bool:
    """Tell whether whole numbers are a step apart at most, and few where few waver."""
    if expected.dtype.kind not in "iu" or _compute_max_difference(expected, found) > 1:
        return False
    apart, wavering = ((expected != other).sum() for other in (found, moved))
    return bool(apart <= _WAVERING * wavering)


def all_agree(expected: list[np.ndarray], found: list[np.ndarray]) -> bool:
    """Tell whether all results of a call agree with those of its plain loops."""
    return all(
        _is_within_tolerance(right, ours, 0.0) for right, ours in zip(expected, found, strict=True)
    )


def _is_within_tolerance(
    expected: np.ndarray,
    found: np.ndarray,
    slack: float,
    *,
    bits: bool = False,
) -> bool:
    if np.array_equal(expected, found):
        return True
    tolerance = _TOLERANCE.get(str(expected.dtype), 0.0 if bits else None)
    if tolerance is None:
        return False
    finite = np.isfinite(expected)
    return (
        bool(np.isfinite(found[finite]).all())
        and _compute_max_difference(expected, found) <= tolerance * _find_max_abs(expected) + slack
    )


def _find_max_abs(expected: np.ndarray) -> float:
    """Return the largest finite value."""
    finite = np.isfinite(expected)
    return float(np.max(np.abs(expected[finite].astype("float64")), initial=0.0))


def _compute_max_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference where the expected value is finite; elsewhere none is right."""
    finite = np.isfinite(expected)
    difference = np.abs(expected[finite].astype("float64") - found[finite].astype("float64"))
    return float(np.max(difference, initial=0.0))
