"""Finds the indices along a block's last axis at which conditions and clamps change their outcome.

Example: `x[max(j - 1, 0)] if j < 30 else 0` of 32 elements has the boundaries 1 and 30 of j. They
divide the axis into parts of 1, 29 and 2.
"""

from collections.abc import Iterator
from typing import Any, Final

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import detect_linear_equation

from autopipe.compiler.loops.index_borders import SIDES, build_difference, find_border
from autopipe.schedules.analysis.blocks import bind_axes
from autopipe.schedules.analysis.usual_stride import choose_side

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
            sign = choose_side(build_difference(node), first=first)
            *steps, offset = _find_linear_steps(analyzer.simplify(sign), axes)
            if steps[-1] and not any(steps[:-1]):
                boundaries.add(find_border(steps[-1], offset))
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


def _find_linear_steps(difference: tvm.ir.Expr, axes: list[tvm.ir.Var]) -> list[int]:
    """Return the steps of a difference along axes, and its offset; zeros if it is not linear."""
    steps = list(detect_linear_equation(difference, axes))
    is_constant = bool(steps) and all(isinstance(step, tvm.tirx.IntImm) for step in steps)
    return list(map(int, steps)) if is_constant else [0] * (len(axes) + 1)
