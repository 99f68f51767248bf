"""Shift axes to begin at zero, and remove reductions of zero or one step.

Schedules count from zero. TVM's loops for an empty reduction write nothing at all. And a reduction
of one step is element-wise: it is scheduled as such, in vectors.

Example: the sums of columns 3 to 9 of [8, 9], of the rows of a tensor [8, 0], which are zeros, and
of the rows of [8, 1].

    for i, k in grid(8, 3 to 9): y[i] += x[i, k]          # before
    for i, k in grid(8, 0): z[i] = 0 at the first k; z[i] += w[i, k]
    for i, k in grid(8, 1): u[i] = 0 at the first k; u[i] += v[i, k]

    for i, k in grid(8, 6): y[i] += x[i, k + 3]           # after
    for i in range(8): z[i] = 0
    for i in range(8): u[i] = 0 + v[i, 0]
"""

import math
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, For, ForKind, IntImm, IterVar, PrimFunc, Stmt, Var

from autopipe.compiler.find_nodes import find_nodes, is_among
from autopipe.compiler.loops.copy_loops import replace_variables

_SPATIAL: Final = IterVar.DataPar


def begin_at_zero(function: PrimFunc) -> bool:
    """Tell whether all axes of blocks begin at zero or at a dynamic size."""
    starts: list[Any] = []

    def block(node: SBlock) -> None:
        starts.extend(axis.dom.min for axis in node.iter_vars)

    tvm_ffi.structural_walk(function.body, (SBlock, block))
    return not any(map(_is_shifted, starts))


def normalize_domains(function: PrimFunc) -> PrimFunc:
    """Shift the axes of a function to begin at zero; remove reductions of fewer than two steps."""
    body = function.body
    if not begin_at_zero(function):
        body = tvm_ffi.structural_map(body, (For, _shift_loop))
        body = tvm_ffi.structural_map(body, (SBlockRealize, _shift_block))
    body = tvm_ffi.structural_map(body, (SBlockRealize, _remove_reduction))
    body = tvm_ffi.structural_map(body, (For, _remove_trivial_loop))
    return function if body.same_as(function.body) else function.with_body(body)


def _is_shifted(start: tvm.ir.Expr) -> bool:
    return isinstance(start, IntImm) and int(start) != 0


def _shift_loop(loop: For) -> For:
    if not _is_shifted(loop.min):
        return loop
    body = replace_variables(loop.body, [(loop.loop_var, loop.loop_var + loop.min)])
    zero = IntImm(str(loop.min.ty.dtype), 0)
    return For(loop.loop_var, zero, loop.extent, loop.kind, body, None, loop.annotations)


def _shift_block(realize: SBlockRealize) -> SBlockRealize:
    old = realize.block
    analyzer = Analyzer()
    if not any(_is_shifted(axis.dom.min) for axis in old.iter_vars):
        return realize
    shifts = [(axis.var, axis.var + axis.dom.min) for axis in old.iter_vars]
    axes = [
        IterVar(tvm.ir.Range(0, axis.dom.extent), axis.var, axis.iter_type, axis.thread_tag)
        for axis in old.iter_vars
    ]
    pairs = zip(realize.iter_values, old.iter_vars, strict=True)
    values = [analyzer.simplify(value - axis.dom.min) for value, axis in pairs]
    reads, writes = (
        [replace_variables(r, shifts) for r in some] for some in (old.reads, old.writes)
    )
    init = None if old.init is None else replace_variables(old.init, shifts)
    block = SBlock(
        axes, reads, writes, old.name_hint, replace_variables(old.body, shifts), init,
        old.alloc_buffers, old.match_buffers, old.annotations,
    )  # fmt: skip
    return SBlockRealize(values, realize.predicate, block)


def _remove_reduction(realize: SBlockRealize) -> SBlockRealize:
    """Replace a reduction block of zero or one steps by one that writes the result."""
    old = realize.block
    pairs = list(zip(old.iter_vars, realize.iter_values, strict=True))
    spatial_axes = [(axis, value) for axis, value in pairs if axis.iter_type == _SPATIAL]
    reduction_axes = [(axis, value) for axis, value in pairs if axis.iter_type != _SPATIAL]
    lengths = [axis.dom.extent for axis, _ in reduction_axes]
    extents = {int(n) if isinstance(n, IntImm) else None for n in lengths}
    first = [(axis.var, axis.dom.min) for axis, _ in reduction_axes]
    if old.init is not None and 0 in extents:
        reads, body = [], old.init
    elif old.init is not None and extents == {1}:
        reads, body = (
            [replace_variables(region, first) for region in old.reads],
            _inline_single_step(old, first),
        )
    else:
        return realize
    if body is None:
        return realize
    block = SBlock(
        [axis for axis, _ in spatial_axes], reads, old.writes, old.name_hint, body,
        annotations=old.annotations,
    )  # fmt: skip
    return SBlockRealize([value for _, value in spatial_axes], realize.predicate, block)


def _inline_single_step(block: SBlock, first: list[tuple[Var, Any]]) -> Stmt | None:
    """Inline the single step of a reduction; None for several results.

    `first` are the reduction axes with their first values. The accumulator is replaced by its
    initial value.
    """
    start, step = block.init, block.body
    if not (isinstance(start, BufferStore) and isinstance(step, BufferStore)):
        return None
    if block.alloc_buffers or block.match_buffers:
        return None

    def before(load: TensorLoad, mutator: tvm_ffi.StructuralMutator) -> Expr:
        is_accumulator = load.source.same_as(step.buffer)
        return start.value if is_accumulator else mutator.default_mutate(load)

    value = tvm_ffi.structural_mutate(step.value, [(TensorLoad, before)])
    return BufferStore(step.buffer, replace_variables(value, first), step.indices)


def _remove_trivial_loop(loop: For) -> Stmt:
    """Replace an empty or serial one-step loop with an unused variable by its body.

    Any other kind of loop is part of a schedule, and stays for the checks that refuse those.
    """
    turns = int(loop.extent) if isinstance(loop.extent, IntImm) else math.inf
    if turns > 1 or (turns and loop.kind != ForKind.SERIAL):
        return loop
    variables = find_nodes(loop.body, Var)
    return loop if is_among(loop.loop_var, variables) else loop.body
