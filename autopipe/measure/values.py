"""Values that made-up inputs and weights have; the time of a kernel does not depend on them."""

from typing import Final

import numpy as np

_POOL: Final = np.random.default_rng(0).uniform(0.1, 1.0, 1 << 16)
"""Positive and far from denormals, which are slow."""


def fill(array: np.ndarray) -> None:
    """Fill a flat array: floats in [0.1, 1), integers 0 and 1, the same ones every time.

    Integers may be indices, and these two are inside every axis that is longer than one.
    """
    floats = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    values = (_POOL if floats else np.round(_POOL)).astype(array.dtype)
    for start in range(0, array.size, values.size):
        part = array[start : start + values.size]
        part[:] = values[: part.size]
