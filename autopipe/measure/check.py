"""Whether a schedule computes what its workload computes; MetaSchedule itself never asks."""

from typing import Any, Final

import numpy as np
import tvm

from autopipe.compiler import elementary
from autopipe.errors import StageError
from autopipe.measure.timing import arguments

_TOLERANCE: Final = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
"""Largest difference relative to the largest value; sums are taken in another order."""


class WrongAnswer(StageError):  # noqa: N818 -- says what happened
    """A schedule changes the result."""


def checked(
    workload: tvm.IRModule, scheduled: tvm.IRModule, target: tvm.target.Target
) -> tvm.IRModule:
    """Return the scheduled module if it agrees with the plain workload on random data.

    Both are compiled and run here. Raises WrongAnswer if they do not agree.
    """
    built = elementary.expand(scheduled)
    for expected, found in zip(_run(workload, target), _run(built, target), strict=True):
        if not _agree(expected, found):
            raise WrongAnswer(f"off by up to {_distance(expected, found):.2g} from the plain loops")
    return scheduled


def _run(module: tvm.IRModule, target: tvm.target.Target) -> list[Any]:
    """Return all arguments after a call; weights keep their layout, the schedule repacks them."""
    library = tvm.tirx.build(module, target)
    tensors = arguments(module)
    library["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def _agree(expected: Any, found: Any) -> bool:  # noqa: ANN401 - arrays of any dtype
    tolerance = _TOLERANCE.get(str(expected.dtype))
    if tolerance is None:
        return bool(np.array_equal(expected, found))
    scale = float(np.max(np.abs(expected), initial=0.0))
    return bool(np.isfinite(found).all()) and _distance(expected, found) <= tolerance * scale


def _distance(expected: Any, found: Any) -> float:  # noqa: ANN401 - arrays of any dtype
    difference = np.abs(expected.astype("float64") - found.astype("float64"))
    return float(np.max(difference, initial=0.0))
