"""Register maxima and minima that begin with an infinity as reducers of TVM's schedules.

TVM splits a reduction only if its identity and operation are registered. TVM registers maxima that
begin with the lowest finite number; importing this module adds those of `extremes`.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr

_REGISTER: Final = "s_tir.schedule.RegisterReducer"


def _register_reducer(combine: Callable[[Expr, Expr], Expr], first: float) -> None:
    """Register a reducer of floats by its operation and its identity."""

    def identity(values: Sequence[Expr]) -> list[Expr]:
        dtype = str(values[0].ty.dtype)
        return [tirx.FloatImm(dtype, first) if "float" in dtype else tirx.const(0, dtype)]

    def combiner(left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        return [combine(left[0], right[0])]

    functions = [tvm_ffi.convert_func(function) for function in (combiner, identity)]
    for function in functions:  # TVM would free them after Python has ended
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    tvm.get_global_func(_REGISTER)(1, *functions)


_register_reducer(tirx.Max, -math.inf)
_register_reducer(tirx.Min, math.inf)
