"""Strides of indices that are clamped, reflected or wrapped, as they are between the borders.

Kernels are split at the borders (`compiler/border_loops.py`), so that a loop moves evenly between
them. Example: `min(max(4 * i - 2, 0), 511)` has stride 4 along i, and 0 where it is clamped. Pairs
of neighbours that are swapped count as they lie.
"""

from typing import Any

import tvm_ffi
from tvm.ir import Call, Expr, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import IntImm, Max, Min, Select


def _without_swap(call: Call) -> Expr:
    """Return the index of which neighbours are swapped, as `i ^ 1` does."""
    swaps = getattr(call.op, "name", "") == "tirx.bitwise_xor"
    return call.args[0] if swaps and isinstance(call.args[1], IntImm) else call


def flat_index(load: TensorLoad) -> Expr:
    """Return the index of an element in its tensor, counted in elements."""
    flat: Any = 0
    for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
        flat = flat * int(extent) + index
    return flat


def usual_stride(load: TensorLoad, axis: Any) -> int | None:  # noqa: ANN401 - TVM's variables
    """Return the longest stride along an axis between borders; None where one is not constant."""
    flat, strides = flat_index(load), []
    for first in (True, False):

        def extreme(one: Min | Max, *, first: bool = first) -> Expr:
            return one.a if first else one.b

        def chosen(one: Select, *, first: bool = first) -> Expr:
            return one.true_value if first else one.false_value

        changes = [((Min, Max), extreme), (Select, chosen), (Call, _without_swap)]
        side = tvm_ffi.structural_map(flat, changes)
        linear = detect_linear_equation(Analyzer().simplify(side), [axis])
        if len(linear) == 0 or not isinstance(linear[0], IntImm):
            return None
        strides.append(abs(int(linear[0])))
    return max(strides)
