"""Finds the indices of a block's axes at which conditions and clamps change their outcome.

Example: `x[max(i - 1, 0)] if j < 30 else 0` of [64, 32] has the boundaries 1 of i and 30 of j. They
split these axes into (1, 63) and (30, 2).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import Analyzer, detect_linear_equation

from autopipe.compiler.loops.index_borders import SIDES, build_difference, find_border
from autopipe.schedules.analysis.usual_stride import choose_side

_PARTS: Final = ("a", "b", "value", "condition", "true_value", "false_value")
_LISTS: Final = ("args", "indices")


def find_boundaries(value: tvm.ir.Expr, block: SBlock) -> Mapping[int, set[int]]:
    """Return the indices of each axis at which a condition, or a clamp, changes its value.

    Conditions on more than one axis are ignored.
    """
    axes = [axis.var for axis in block.iter_vars]
    boundaries: dict[int, set[int]] = defaultdict(set)
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    for node in nodes_of(value):
        if not isinstance(node, SIDES) or not _is_integer(node.a):
            continue
        for first in (True, False):  # operand of an inner select, such as a clamp at the other end
            sign = choose_side(build_difference(node), first=first)
            steps = [int(step) for step in _find_linear_steps(analyzer.simplify(sign), axes)]
            varying_axes = [at for at, step in enumerate(steps[:-1]) if step]
            if len(varying_axes) == 1:
                boundaries[varying_axes[0]].add(find_border(steps[varying_axes[0]], steps[-1]))
    return boundaries


def divide_axis(boundaries: set[int], extent: int) -> tuple[int, ...]:
    """Return the extents between the boundaries of an axis; () without an inner boundary."""
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


def _find_linear_steps(difference: tvm.ir.Expr, axes: list[tvm.ir.Var]) -> list[Any]:
    steps = list(detect_linear_equation(difference, axes))
    return steps if all(isinstance(step, tvm.tirx.IntImm) for step in steps) else []
