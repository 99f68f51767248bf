"""Values of synthetic inputs and weights; the time of a kernel does not depend on them."""

from collections.abc import Sequence
from math import prod
from typing import Final

import ml_dtypes  # noqa: F401 -- teaches numpy bfloat16
import numpy as np

from autopipe.compiler.library.arena import Arena
from autopipe.runtime.weights import ALIGNMENT

Port = tuple[Sequence[int], str]
"""Shape and dtype of a tensor."""

_POOL: Final = np.random.default_rng(0).uniform(0.1, 1.0, 1 << 16)
"""Positive and far from denormals, which are slow."""


def fill_array(array: np.ndarray) -> None:
    """Fill a flat array: floats in [0.1, 1), integers 0 and 1, the same ones every time.

    Integers may be indices, and these two are inside every axis that is longer than one.
    """
    floats = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    values = (_POOL if floats else np.round(_POOL)).astype(array.dtype)
    for start in range(0, array.size, values.size):
        part = array[start : start + values.size]
        part[:] = values[: part.size]


def make_weight_arrays(ports: Sequence[Port], least: int = 0) -> list[np.ndarray]:
    """Create synthetic arrays in one arena, like the weights of a package.

    It has large pages if the arrays, or `least` bytes, fill at least one.
    """
    arena = Arena(max(least, sum(_count_bytes(*port) + ALIGNMENT for port in ports)))
    arrays = [arena.take(tuple(shape), np.dtype(dtype)) for shape, dtype in ports]
    for array in arrays:
        fill_array(array.reshape(-1))
    return arrays


def _count_bytes(shape: Sequence[int], dtype: str) -> int:
    return prod(shape) * np.dtype(dtype).itemsize
