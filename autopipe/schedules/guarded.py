"""Guards parallel loops of functions with dynamic shapes by a minimum amount of work.

The amount of work is known when a function is called. So a loop nest is written twice, behind a
condition on the sizes. Example: a border around images of 8 * height by 8 * width.

    if height * width * 64 >= 16384:
        for row in parallel(8 * height):
            ...
    else:
        for row in range(8 * height):
            ...
"""

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    DynamicSizes,
    open_variables,
    read_dynamic_sizes,
)
from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.loops.copy_loops import copy_loop_nest, list_blocks
from autopipe.schedules.analysis.blocks import Extent, extent_of, is_large_enough, product_of
from autopipe.schedules.parallel_work import ELEMENTS
from autopipe.schedules.primitives import rewrite_function

_SERIAL_SUFFIX: Final = "_alone"
"""Suffix of the buffers that only the serial copy of a loop nest uses."""


def guard_parallel_loops(
    sch: Schedule, block: str | None = None, *, pays: bool | tvm.ir.Expr | None = None
) -> None:
    """Guard each outermost parallel loop of a function with dynamic shapes.

    A loop with little work runs on one thread. With the name of a block, only the loop around it.
    `pays` is the condition for threads; by default it is a number of iterations.
    """
    function = sch.mod["main"]
    dynamic_sizes = read_dynamic_sizes(function) if open_variables(function) else None
    if dynamic_sizes is None:  # static, as are the functions that pack weights of a dynamic one
        return
    root = sch.get(sch.get_sblock("root"))
    nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    new_buffers: list[Any] = []
    bodies = [
        guard_nest(
            nest, dynamic_sizes, _list_own_buffers(root, nests, nest), new_buffers, pays=pays
        )
        if _has_block(nest, block)
        else nest
        for nest in nests
    ]
    if all(body.same_as(nest) for body, nest in zip(bodies, nests, strict=True)):
        return
    rewrite_function(sch, tirx.stmt_seq(*bodies), [*root.alloc_buffers, *new_buffers])


def guard_nest(
    nest: tirx.Stmt,
    dynamic_sizes: DynamicSizes | None,
    own_buffers: Sequence[Any] = (),
    new_buffers: list[Any] | None = None,
    *,
    pays: bool | tvm.ir.Expr | None = None,
) -> tirx.Stmt:
    """Return a loop nest that is parallel only where that pays.

    By default it does where its blocks run at least `ELEMENTS` times. A buffer of `own_buffers` is
    used by this nest alone. The serial copy gets a buffer of its own, appended to `new_buffers`:
    else TVM would allocate one above both, shared by all threads.
    """
    if dynamic_sizes is None or not isinstance(nest, tirx.For):
        return nest
    if nest.kind != tirx.ForKind.PARALLEL:
        return nest
    if pays is None:
        pays = is_large_enough([_count_iterations(nest)], ELEMENTS, dynamic_sizes)
    if pays is True:
        return nest
    if pays is False:
        return replace_loop_kind(nest, tirx.ForKind.SERIAL)
    copies = [tirx.Var(f"{buffer.name}{_SERIAL_SUFFIX}", buffer.ty) for buffer in own_buffers]
    if new_buffers is not None:
        new_buffers += copies
    serial_nest = copy_loop_nest(
        replace_loop_kind(nest, tirx.ForKind.SERIAL), list(zip(own_buffers, copies, strict=True))
    )
    return tirx.IfThenElse(pays, nest, serial_nest)


def replace_loop_kind(loop: tirx.For, kind: int) -> tirx.For:
    """Return a copy of a loop of another kind, such as a serial one."""
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body)


def _count_iterations(nest: tirx.Stmt) -> Extent:
    """Return the total number of iterations of the blocks of a nest."""
    if isinstance(nest, tirx.For):
        return product_of([extent_of(nest.extent), _count_iterations(nest.body)])
    if isinstance(nest, tirx.SeqStmt):
        first, *later_counts = map(_count_iterations, nest.seq)
        return sum(later_counts, start=first)
    return 1


def _list_own_buffers(root: SBlock, nests: Sequence[tirx.Stmt], nest: tirx.Stmt) -> list[Any]:
    """Return the buffers of a root block that only one of its nests uses."""
    other_buffers = [used for other in nests if other is not nest for used in _list_buffers(other)]
    return [
        buffer
        for buffer in root.alloc_buffers
        if is_among(buffer, _list_buffers(nest)) and not is_among(buffer, other_buffers)
    ]


def _list_buffers(nest: tirx.Stmt) -> list[Any]:
    buffers: list[Any] = []
    for block in list_blocks(nest):
        buffers += [region.source for region in (*block.reads, *block.writes)]
    return buffers


def _has_block(nest: tirx.Stmt, block: str | None) -> bool:
    return block is None or any(one.name_hint == block for one in list_blocks(nest))
