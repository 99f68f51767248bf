"""Weights of float16 models, stored in float16 where the library computes in float32.

For a processor without float16 arithmetic the build casts weights to float32. Packing only reorders
them, so most are still exact in float16: these are stored in float16, and cast again when the
library is loaded. Others, such as kernels that were transformed for Winograd, stay in float32.
"""

from collections.abc import Mapping

import numpy as np

_WIDE, _NARROW = np.dtype("float32"), np.dtype("float16")


def narrow_weights(
    arrays: Mapping[str, np.ndarray], originals: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Cast the arrays of a package to float16 where the cast is exact.

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
    is_exact = np.array_equal(half.astype(_WIDE).view(np.uint32), array.view(np.uint32))
    return half if is_exact else array
