"""Tells TVM's schedules of maxima and minima that begin with an infinity.

TVM splits a reduction only if it has its first value and its operation in a list. It has maxima
that begin with the lowest finite number. Importing this module adds those of `extremes`.
"""

import ctypes
import math
from collections.abc import Callable
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

# ruff: noqa: ANN401  TVM's expressions have no types

_REGISTER: Final = "s_tir.schedule.RegisterReducer"


def _register(combine: Callable[..., Any], first: float) -> None:
    """Add a reduction of floats by its operation and its first value."""

    def identity(values: Any) -> Any:
        dtype = str(values[0].ty.dtype)
        return [tirx.FloatImm(dtype, first) if "float" in dtype else tirx.const(0, dtype)]

    def combiner(one: Any, other: Any) -> Any:
        return [combine(one[0], other[0])]

    functions = [tvm_ffi.convert_func(function) for function in (combiner, identity)]
    for function in functions:  # TVM would free them after Python has ended
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    tvm.get_global_func(_REGISTER)(1, *functions)


_register(tirx.Max, -math.inf)
_register(tirx.Min, math.inf)
