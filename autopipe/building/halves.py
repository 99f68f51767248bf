"""Weights of float16 models, kept in float16 where the library computes in float32.

A library for a processor without such arithmetic has its weights widened by the build. The numbers
are those of the model, in another order, so float16 holds most of them exactly: these are written
so, and widened again when the library is loaded. What it does not hold, such as kernels that were
transformed for Winograd, stays as it is.
"""

from collections.abc import Mapping

import numpy as np

_WIDE, _NARROW = np.dtype("float32"), np.dtype("float16")


def narrow_weights(
    arrays: Mapping[str, np.ndarray], originals: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the arrays of a package, in float16 where that gives back the same bits.

    `originals` are the weights of the model: nothing is narrowed unless some are of float16.
    """
    if all(array.dtype != _NARROW for array in originals.values()):
        return dict(arrays)
    return {name: _narrow_if_exact(array) for name, array in arrays.items()}


def _narrow_if_exact(array: np.ndarray) -> np.ndarray:
    if array.dtype != _WIDE:
        return array
    with np.errstate(over="ignore"):
        half = array.astype(_NARROW)
    same = np.array_equal(half.astype(_WIDE).view(np.uint32), array.view(np.uint32))
    return half if same else array
