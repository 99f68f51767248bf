"""Simplifies the indices of blocks by the ranges of their axes.

An inlined block leaves its indices in the consumer. After several reshapes these are divisions by
extents, which TVM does not cancel, and which prevent vectorization.

Example: x as [8, 64, 784], and that as [8, 8, 8, 784], with axes of these extents.

    y[a, b, c, k] = x[a, (b * 64 + c * 8 + k // 784) // 8 % 64, k % 784]        # before
    y[a, b, c, k] = x[a, b * 8 + c, k]                                          # after

Truncating division, as in C, equals floor division where the dividend is not negative. TVM's
analysis of linear indices supports floor division alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Expr, Range, TensorLoad, TensorRegion
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import BufferRegion, BufferStore, Div, FloorDiv, FloorMod, IntImm, Mod, Stmt

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.loops.exact_divisions import has_zero_start, protect_index
from autopipe.schedules.analysis.blocks import bind_axes
from autopipe.schedules.analysis.expressions import count_occurrences

LONGEST: Final = 8
"""Longest period that is unrolled."""

DIVISIONS: Final = (FloorDiv, FloorMod)
"""The divisions in indices."""


def simplify_block(sch: Schedule, rv: SBlockRV) -> None:
    """Simplify the indices of a block if there are divisions in them."""
    block = sch.get(rv)
    simple = to_simple_indices(block)
    if not simple.same_as(block):
        sch.state.replace(sch.get_sref(rv), simple, {block: simple})


def find_period(value: Expr, axis: tvm.ir.Var) -> int:
    """Return the period, in steps along an axis, of all divisions of it in a value.

    1 without divisions, 0 where a divisor is not constant.
    """
    divisors = find_nodes(value, *DIVISIONS)
    periods = [one.b for one in divisors if count_occurrences(one.a, axis)]
    if any(not isinstance(one, IntImm) or int(one) <= 0 for one in periods):
        return 0
    return math.lcm(*map(int, periods))


def to_simple_indices(block: SBlock) -> SBlock:
    """Return a block with simplified indices; the block itself if it has no division."""
    if not _has_division(block.body):
        return block
    analyzer = bind_axes(block)
    starts = [axis.var for axis in block.iter_vars if has_zero_start(axis.dom)]

    def index(expression: Expr) -> Expr:
        return protect_index(
            analyzer.simplify(_floor_divisions(expression, analyzer)), starts, analyzer
        )

    def load(old: TensorLoad) -> Expr:
        return old.source[tuple(map(index, old.indices))]

    def store(old: BufferStore) -> BufferStore:
        return BufferStore(old.buffer, old.value, list(map(index, old.indices)))

    def of(part: Stmt) -> Stmt:
        statement = tvm_ffi.structural_map(part, (TensorLoad, load))
        return tvm_ffi.structural_map(statement, (BufferStore, store))

    return SBlock(
        block.iter_vars, _map_regions(block.reads, index), _map_regions(block.writes, index),
        block.name_hint, of(block.body), of(block.init) if block.init is not None else None,
        list(block.alloc_buffers), list(block.match_buffers), block.annotations,
    )  # fmt: skip


def _map_regions(
    regions: Sequence[TensorRegion], index: Callable[[Expr], Expr]
) -> list[TensorRegion]:
    def simple(part: Range) -> Range:
        return Range.from_min_extent(index(part.min), index(part.extent))

    return [BufferRegion(one.source, list(map(simple, one.region))) for one in regions]


def _floor_divisions(index: Expr, analyzer: Analyzer) -> Expr:
    """Replace truncating divisions of nonnegative dividends by floor divisions."""

    def other(floor_class: Any) -> Callable[[Any], Expr]:  # noqa: ANN401 - a class of TVM
        def down(node: tvm.ir.Expr) -> Expr:
            positive = isinstance(node.b, IntImm) and int(node.b) > 0
            return (
                floor_class(node.a, node.b)
                if positive and analyzer.can_prove(node.a >= 0)
                else node
            )

        return down

    index_without_div = tvm_ffi.structural_map(index, (Div, other(FloorDiv)))
    return tvm_ffi.structural_map(index_without_div, (Mod, other(FloorMod)))


def _has_division(body: tvm.tirx.Stmt) -> bool:
    divisions = find_nodes(body, *DIVISIONS, Div, Mod)
    return any("int" in str(one.ty.dtype) for one in divisions)
