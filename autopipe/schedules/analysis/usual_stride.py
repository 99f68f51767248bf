"""Strides of clamped, reflected or wrapped indices, between their borders.

Kernels are split at the borders (the pass `split_at_borders`), so that indices are linear between
them. Example: `min(max(4 * i - 2, 0), 511)` has stride 4 along i, and 0 where it is clamped. A
swap of neighbours, `i ^ 1`, is ignored.
"""

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.ir.prim.expr import BitwiseXor
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import IntImm, Max, Min, Select

from autopipe.schedules.analysis.expressions import flat_index


def choose_side(expr: Expr, *, first: bool) -> Expr:
    """Replace each min, max and select by its first, or its second, operand."""

    def extreme(node: Min | Max) -> Expr:
        return node.a if first else node.b

    def chosen(select: Select) -> Expr:
        return select.true_value if first else select.false_value

    return tvm_ffi.structural_map(expr, [((Min, Max), extreme), (Select, chosen)])


def _remove_swap(swap: BitwiseXor) -> Expr:
    """Remove a swap of neighbours from an index: `i ^ 1` becomes `i`."""
    return swap.a if isinstance(swap.b, IntImm) else swap


def find_axis_stride(load: TensorLoad, axis: tvm.ir.Var) -> int | None:
    """Return the longest stride along an axis between borders; None where one is not constant."""
    flat, strides = flat_index(load.source, load.indices), []
    for first in (True, False):
        side = tvm_ffi.structural_map(choose_side(flat, first=first), (BitwiseXor, _remove_swap))
        stride = find_stride(side, axis)
        if stride is None:
            return None
        strides.append(abs(stride))
    return max(strides)


def find_stride(offset: Expr, variable: tvm.ir.Var) -> int | None:
    """Return the step of an offset along a variable, or None if it is not constant."""
    linear = detect_linear_equation(Analyzer().simplify(offset), [variable])
    is_constant = len(linear) > 0 and isinstance(linear[0], IntImm)
    return int(linear[0]) if is_constant else None
