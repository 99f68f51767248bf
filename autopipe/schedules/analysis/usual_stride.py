"""Strides of indices that are clamped, reflected or wrapped, as they are between the borders.

Kernels are split at the borders (the pass `split_at_borders`), so that a loop moves evenly between
them. Example: `min(max(4 * i - 2, 0), 511)` has stride 4 along i, and 0 where it is clamped. Pairs
of neighbours that are swapped count as they lie.
"""

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.ir.prim.expr import BitwiseXor
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import IntImm, Max, Min, Select

from autopipe.schedules.analysis.expressions import flat_index


def choose_side(expr: Expr, *, first: bool) -> Expr:
    """Return an expression with the first, or the second, of two values wherever it chooses."""

    def extreme(node: Min | Max) -> Expr:
        return node.a if first else node.b

    def chosen(select: Select) -> Expr:
        return select.true_value if first else select.false_value

    return tvm_ffi.structural_map(expr, [((Min, Max), extreme), (Select, chosen)])


def _remove_swap(swap: BitwiseXor) -> Expr:
    """Return the index of which neighbours are swapped, as `i ^ 1` does."""
    return swap.a if isinstance(swap.b, IntImm) else swap


def find_axis_stride(load: TensorLoad, axis: tvm.ir.Var) -> int | None:
    """Return the longest stride along an axis between borders; None where one is not constant."""
    flat, strides = flat_index(load), []
    for first in (True, False):
        side = tvm_ffi.structural_map(choose_side(flat, first=first), (BitwiseXor, _remove_swap))
        linear = detect_linear_equation(Analyzer().simplify(side), [axis])
        if len(linear) == 0 or not isinstance(linear[0], IntImm):
            return None
        strides.append(abs(int(linear[0])))
    return max(strides)
