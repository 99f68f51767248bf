"""Draw seeded random weights.

The output of every layer gets variance one. For that, a kernel is drawn with variance
1 / (fan-in x expected square of its input). Behind a ReLU that is 2 / fan-in, the initialization
`he_normal` (arXiv:1502.01852).
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autopipe.compiler.frontends.moments import Role
from autopipe.compiler.step_counter import count_bytes

Array = np.ndarray[Any, Any]

_BIAS = 0.1
_SPREAD = 0.2
_CHUNK = 2**16
# Four 16-bit numbers, added: their mean, and the square root of their variance.
_SUM_MEAN = 2 * (2**16 - 1)
_SUM_STD = math.sqrt(4 * (2**32 - 1) / 12)


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """A weight to be drawn."""

    role: Role
    shape: tuple[int, ...]
    dtype: np.typing.DTypeLike

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def draw_weights(plans: Mapping[str, WeightPlan], seed: int) -> dict[str, Array]:
    """Draw weights by name; each is a function of its name and the seed alone."""
    report = count_bytes("MiB of weights drawn", sum(plan.nbytes for plan in plans.values()))
    weights = {}
    for name, plan in plans.items():
        weights[name] = _draw_weight(f"{seed}:{name}", plan.role, plan.shape, plan.dtype)
        report(plan.nbytes)
    return weights


def _draw_weight(key: str, role: Role, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> Array:
    """Draw a weight for a role; it is a function of the key."""
    z = draw_normal(key, math.prod(shape))
    deviation = math.sqrt(role.data.variance)
    if role.kind == "kernel":
        z *= _round_number(1 / math.sqrt(role.fan_in * role.data.square))
    elif role.kind == "shift":
        z *= _BIAS
    elif role.kind == "scale":
        z = _scale_around_one(z)
    elif role.kind == "mean":
        z = _round_number(role.data.mean) + z * _round_number(_BIAS * deviation)
    elif role.kind == "variance":
        z = _scale_around_one(z) * _round_number(role.data.variance)
    return z.reshape(shape).astype(dtype)


def _round_number(number: float) -> np.float32:
    """Round a number to six digits, so that it is equal on all machines."""
    return np.float32(f"{number:.6g}")


def _scale_around_one(z: Array) -> Array:
    """Draw numbers around one, bounded away from zero."""
    return 1 + _SPREAD * z


def draw_normal(key: str, count: int) -> Array:
    """Draw approximately normal float32 numbers, equal on all machines and NumPy versions.

    Each number is the sum of four uniform 16-bit integers (Irwin-Hall distribution). Integers are
    exact everywhere. NumPy's normal numbers depend on the C library and on its version.
    """
    bits = np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest()))
    numbers = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        parts = bits.random_raw(size).view(np.uint16).reshape(size, 4).astype(np.int32)
        total = parts[:, 0] + parts[:, 1] + parts[:, 2] + parts[:, 3] - _SUM_MEAN
        numbers[start : start + size] = total * np.float32(1 / _SUM_STD)
    return numbers
