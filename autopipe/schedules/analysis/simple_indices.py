"""Makes indices of blocks as simple as their axes allow.

A block that is computed where it is read leaves its own indices there. Where several reshapes meet
that are divisions by extents, which TVM keeps though they fall away, and no vector is made of them.

Example: x as [8, 64, 784], and that as [8, 8, 8, 784], with axes of these extents.

    y[a, b, c, k] = x[a, (b * 64 + c * 8 + k // 784) // 8 % 64, k % 784]        # before
    y[a, b, c, k] = x[a, b * 8 + c, k]                                          # after

Division that rounds towards zero, as C has it, is the same as the one that rounds down where
nothing is negative. TVM's analysis of what moves evenly knows that one alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import Expr, Range, TensorLoad, TensorRegion
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import BufferRegion, BufferStore, Cast, Div, FloorDiv, FloorMod, IntImm, Mod, Stmt

from autopipe.compiler.loops.exact_divisions import has_zero_start, protect_index
from autopipe.schedules.analysis.blocks import bind_axes
from autopipe.schedules.analysis.expressions import find_nodes
from autopipe.schedules.analysis.known_conditions import remove_known_conditions


def simplify_block(sch: Schedule, rv: SBlockRV) -> None:
    """Replace a block whose indices are divided by one with simple indices."""
    block = sch.get(rv)
    simple = to_simple_indices(block)
    if not simple.same_as(block):
        sch.state.replace(sch.get_sref(rv), simple, {block: simple})


def to_simple_indices(block: SBlock) -> SBlock:
    """Return a block with simple indices; itself if nothing is divided in it."""
    if not _has_division(block.body):
        return block
    known = bind_axes(block)
    starts = [axis.var for axis in block.iter_vars if has_zero_start(axis.dom)]

    def index(one: Expr) -> Expr:
        return protect_index(known.simplify(_floor_divisions(one, known)), starts, known)

    def load(one: TensorLoad) -> Expr:
        return one.source[tuple(map(index, one.indices))]

    def store(one: BufferStore) -> BufferStore:
        return BufferStore(one.buffer, one.value, list(map(index, one.indices)))

    def of(part: Stmt) -> Stmt:
        changed = remove_known_conditions(part, known, _floor_divisions)
        changed = tvm_ffi.structural_map(changed, (TensorLoad, load))
        return tvm_ffi.structural_map(changed, (BufferStore, store))

    return SBlock(
        block.iter_vars, _map_regions(block.reads, index), _map_regions(block.writes, index),
        block.name_hint, of(block.body), of(block.init) if block.init is not None else None,
        list(block.alloc_buffers), list(block.match_buffers), block.annotations,
    )  # fmt: skip


def simplify_casts(block: SBlock) -> SBlock:
    """Return a block that stores, with numbers made of its indices as simple as its axes allow.

    Example: a mean of 3 x 3 pixels divides by how many are inside of an image of 28, `min(i, 0) * 2
    + min(i * 2 + 2, 27) + 1 - i * 2` by as many columns. For i < 13 that is 9, and no vector of
    integers of 64 bits is made into floats.
    """
    known = bind_axes(block)

    def cast(one: Cast) -> Expr:
        return known.simplify(one) if "int" in str(one.value.ty.dtype) else one

    value = tvm_ffi.structural_map(block.body.value, (Cast, cast))
    if value.same_as(block.body.value):
        return block
    return SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint,
        BufferStore(block.body.buffer, value, block.body.indices), block.init,
        list(block.alloc_buffers), list(block.match_buffers), block.annotations,
    )  # fmt: skip


def _map_regions(
    regions: Sequence[TensorRegion], index: Callable[[Expr], Expr]
) -> list[TensorRegion]:
    def simple(one: Range) -> Range:
        return Range.from_min_extent(index(one.min), index(one.extent))

    return [BufferRegion(one.source, list(map(simple, one.region))) for one in regions]


def _floor_divisions(index: Expr, known: Analyzer) -> Expr:
    """Return an index whose divisions of what is not negative round down."""

    def other(kind: Any) -> Callable[[Any], Expr]:  # noqa: ANN401 - a class of TVM
        def down(one: tvm.ir.Expr) -> Expr:
            positive = isinstance(one.b, IntImm) and int(one.b) > 0
            return kind(one.a, one.b) if positive and known.can_prove(one.a >= 0) else one

        return down

    changed = tvm_ffi.structural_map(index, (Div, other(FloorDiv)))
    return tvm_ffi.structural_map(changed, (Mod, other(FloorMod)))


def _has_division(body: tvm.tirx.Stmt) -> bool:
    found = find_nodes(body, FloorDiv, FloorMod, Div, Mod)
    return any("int" in str(one.ty.dtype) for one in found)
