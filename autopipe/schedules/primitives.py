"""Schedules of functions: empty ones, parallel loops where they pay, replaced bodies."""

import math
from collections.abc import Iterable, Sequence

import tvm
from tvm.ir import TensorRegion, Var
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, Stmt, stmt_seq

from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.loops.copy_loops import copy_root
from autopipe.schedules.analysis.blocks import extent_of, extents_of
from autopipe.schedules.parallel_work import ELEMENTS, UNKNOWN_SIZE


def make_schedule(module: tvm.IRModule) -> Schedule:
    """Create an empty schedule of a module."""
    return Schedule(module, debug_mask="none", error_render_level="none")


def rewrite_function(sch: Schedule, body: Stmt, buffers: Sequence[Var] | None = None) -> None:
    """Replace the body of a function.

    `buffers` are the intermediate buffers that it allocates; None keeps the present ones.
    """
    root_rv = sch.get_sblock("root")
    root = sch.get(root_rv)
    new = copy_root(root, body, buffers)
    sch.state.replace(sch.get_sref(root_rv), new, {root: new})


def replace_block(
    sch: Schedule, rv: SBlockRV, body: Stmt, writes: Sequence[TensorRegion] | None = None
) -> None:
    """Replace the body of a block, and its written regions if `writes` are given."""
    old = sch.get(rv)
    new = SBlock(
        old.iter_vars, old.reads, old.writes if writes is None else writes, old.name_hint, body,
        annotations=old.annotations,
    )  # fmt: skip
    sch.state.replace(sch.get_sref(rv), new, {old: new})


def inline_blocks(sch: Schedule, names: Iterable[str]) -> None:
    """Inline named blocks into their consumers. Raises ScheduleError where TVM refuses."""
    for name in names:
        sch.compute_inline(sch.get_sblock(name))


def replace_sums(
    sch: Schedule, nests: Sequence[Stmt], totals: Sequence[Var], last: SBlock | None,
    copies: Sequence[Var] = (),
) -> None:  # fmt: skip
    """Replace the sums of a function by loop nests; the sums that `last` reads need no buffer then.

    `totals` are the buffers of the sums, `last` is the block that computes the result from them, if
    there is one, and `copies` are further buffers that the nests use.
    Raises ScheduleError if a sum is an output of the function, too.
    """
    buffers = list(sch.get(sch.get_sblock("root")).alloc_buffers)
    if last is not None:  # else some of several results may be unused
        sum_buffers = [buffer for buffer in buffers if is_among(buffer, totals)]
        if len(sum_buffers) < len(totals):
            raise ScheduleError("the sum is an output too")
        buffers = [buffer for buffer in buffers if not is_among(buffer, sum_buffers)]
    rewrite_function(sch, stmt_seq(*nests), [*buffers, *copies])


def spread_vectors(sch: Schedule, block: SBlockRV, most: int) -> None:
    """Compute a block in parallel, in vectors of at most `most` elements."""
    *outer, last = sch.get_loops(block)
    rest, vector = sch.split(last, [None, math.gcd(int(sch.get(last).extent), most)])
    parallelize_loop(sch, block, fuse_for_threads(sch, [*outer, rest]), ELEMENTS)
    sch.vectorize(vector)


def fuse_for_threads(sch: Schedule, loops: Sequence[LoopRV]) -> LoopRV:
    """Return the loop to parallelize: all loops fused, or else the first one of extent above 1.

    The index of fused loops is divided by all extents but the first. To find the written region of
    a buffer, TVM then divides by a dynamic one before the loops, where it may be 0, or gives up.
    """
    extents = [sch.get(loop).extent for loop in loops]
    if all(isinstance(extent, IntImm) for extent in extents[1:]):
        return sch.fuse(*loops)
    place = next((at for at, n in enumerate(extents) if extent_of(n) != 1), 0)
    if place:  # a loop that is not the outermost one is not guarded
        sch.reorder(loops[place], *loops[:place])
    return loops[place]


def parallelize_loop(sch: Schedule, block: SBlockRV, loop: LoopRV, least: int) -> None:
    """Run a loop around a block in parallel if the block has at least `least` iterations."""
    sizes = *extents_of(sch.get(block)), *extents_of(sch.get(block), spatial=False)
    if math.prod(UNKNOWN_SIZE if size < 0 else size for size in sizes) >= least:
        sch.parallel(loop)


def write_out(sch: Schedule, block: SBlockRV, count: int) -> None:
    """Vectorize the innermost loop of a block and unroll the others of its `count` innermost loops.

    Their results stay in registers then.
    """
    *loops, vector = sch.get_loops(block)[-count:]
    sch.vectorize(vector)
    for loop in loops:
        sch.unroll(loop)


def compute_locally(sch: Schedule, block: SBlockRV, loop: LoopRV) -> SBlockRV:
    """Compute a block inside a loop, in registers or in memory of the thread; return the block."""
    sch.compute_at(block, loop, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    return block
