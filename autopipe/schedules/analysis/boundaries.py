"""Finds where conditions and clamps change their outcome, and the strides of indices in between.

Example: `x[max(j - 1, 0)] if j < 30 else 0` of 32 elements has the boundaries 1 and 30 of j. They
divide the axis into parts of 1, 29 and 2.

Kernels are split at the borders (the pass `split_at_borders`), so that indices are linear between
them. Example: `min(max(4 * i - 2, 0), 511)` has stride 4 along i, and 0 where it is clamped. A swap
of neighbours, `i ^ 1`, is ignored.
"""

from collections.abc import Iterator
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.ir.prim.expr import BitwiseXor
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import IntImm, Max, Min, Select

from autopipe.compiler.loops.index_borders import SIDES, build_difference, find_border
from autopipe.schedules.analysis.blocks import bind_axes
from autopipe.schedules.analysis.expressions import find_steps, flat_index

_PARTS: Final = ("a", "b", "value", "condition", "true_value", "false_value")
_LISTS: Final = ("args", "indices")


def divide_last_axis(value: tvm.ir.Expr, block: SBlock) -> tuple[int, ...]:
    """Return the extents into which the boundaries divide the last axis; () without an inner one.

    Conditions on more than one axis are ignored.
    """
    axes = [axis.var for axis in block.iter_vars]
    boundaries = set()
    analyzer = bind_axes(block)
    for node in nodes_of(value):
        if not isinstance(node, SIDES) or not _is_integer(node.a):
            continue
        for first in (True, False):  # operand of an inner select, such as a clamp at the other end
            sign = analyzer.simplify(choose_side(build_difference(node), first=first))
            *steps, last_step = find_steps(sign, axes) or [0]
            offset = analyzer.simplify(sign - last_step * axes[-1])
            if last_step and not any(steps) and isinstance(offset, IntImm):
                boundaries.add(find_border(last_step, int(offset)))
    extent = int(block.iter_vars[-1].dom.extent)
    inside = sorted(boundary for boundary in boundaries if 0 < boundary < extent)
    ends = [*inside, extent]
    return tuple(map(int.__sub__, ends, [0, *inside])) if inside else ()


def nodes_of(node: tvm.ir.Node, *, within_loads: bool = True) -> Iterator[Any]:
    """Yield an expression and its subexpressions, in pre-order."""
    yield node
    if within_loads or not isinstance(node, TensorLoad):
        parts = (getattr(node, name, None) for name in _PARTS)
        lists = (getattr(node, name, ()) for name in _LISTS)
        children = [part for part in parts if isinstance(part, tvm.runtime.Object)]
        for child in (*children, *(child for those in lists for child in those)):
            yield from nodes_of(child, within_loads=within_loads)


def _is_integer(value: tvm.ir.Expr) -> bool:
    return "int" in str(value.ty)


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
    steps = find_steps(Analyzer().simplify(offset), [variable])
    return steps[0] if steps else None
