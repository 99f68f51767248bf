"""Hoists calls of elementary functions that are invariant in an outer loop.

LLVM hoists what is invariant in an inner loop. A value that changes there, and is invariant in an
outer loop, such as a function of columns, it computes in each iteration.

Example: y[c, p] = x[c, p] - log(total[p]) of [64, 784] takes 50176 logarithms, of 784 numbers.

    for p in range(784):                              # here: a block of its own
        log_of[p] = log(total[p])
    for c, p in grid(64, 784):
        y[c, p] = x[c, p] - log_of[p]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.script.ir_builder import IRBuilder

from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.compiler.loops.copy_loops import copy_root
from autopipe.schedules.analysis.blocks import is_spatial, is_static, number_of
from autopipe.schedules.analysis.effort import is_elementary
from autopipe.schedules.analysis.expressions import replace_variables
from autopipe.schedules.loop_writer import element_block, store_element

_TIMES: Final = 4
"""Minimum number of evaluations of a value that is hoisted to a block of its own."""


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A call, and the axes of its block that it depends on."""

    call: Call
    axes: tuple[Any, ...]


def hoist_calls(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Hoist the calls of a function of several blocks to blocks of their own; else return it."""
    root = getattr(function.body, "block", None)
    if not isinstance(root, SBlock) or not isinstance(root.body, tirx.SeqStmt):
        return function
    statements: list[Any] = []
    buffers = list(root.alloc_buffers)
    for statement in root.body.seq:
        statements += _split_statement(statement, buffers)
    if len(buffers) == len(root.alloc_buffers):
        return function
    new_root = copy_root(root, tirx.SeqStmt(statements), buffers)
    return function.with_body(SBlockRealize([], True, new_root))  # noqa: FBT003 - TVM's signature


def _split_statement(statement: tvm.tirx.Stmt, buffers: list[tvm.ir.Var]) -> list[Any]:
    """Return the loops of the hoisted calls, then the statement; append their buffers."""
    block = _find_assignment_block(statement)
    steps: list[Any] = []
    for hoisted_call in _list_hoistable_calls(block) if block is not None else ():
        loops, buffer = _build_step(hoisted_call, f"elementary{len(buffers)}")
        steps.append(loops)
        buffers.append(buffer)
        statement = _replace_calls(statement, hoisted_call, buffer)
    return [*steps, statement]


def _find_assignment_block(statement: tvm.tirx.Stmt) -> SBlock | None:
    """Return the block of a loop nest that assigns each element once; None for others."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    block = statement.block if isinstance(statement, SBlockRealize) else None
    if block is None or not block.iter_vars or not isinstance(block.body, tirx.BufferStore):
        return None
    return block if is_spatial(block) and is_static(block) else None


def _list_hoistable_calls(block: SBlock) -> list[_Lifted]:
    """Return the outermost calls of elementary functions that are invariant along enough axes.

    A call that is invariant along the last axis is left to LLVM.
    """
    calls = find_nodes(block.body.value, Call)
    hoisted_calls: list[_Lifted] = []
    for call in sorted(filter(is_elementary, calls), key=lambda one: -len(str(one))):
        axes = _find_call_axes(block, call)
        if axes is None or not axes or not axes[-1].var.same_as(block.iter_vars[-1].var):
            continue
        times = _count_elements(block.iter_vars) // _count_elements(axes)
        is_nested = any(_has_call(one.call, call) for one in hoisted_calls)
        if (
            times >= _TIMES
            and _count_elements(axes[-1:]) > 1
            and not is_nested
            and list_loads(call)
        ):
            hoisted_calls.append(_Lifted(call, axes))
    return hoisted_calls


def _find_call_axes(block: SBlock, call: Call) -> tuple[Any, ...] | None:
    """Return the axes that a call depends on; None if it depends on other variables."""
    variables = find_nodes(call, tirx.Var)
    tensors = [load.source for load in list_loads(call)]
    axes = [axis for axis in block.iter_vars if is_among(axis.var, variables)]
    allowed_variables = [*(axis.var for axis in axes), *tensors]
    if not all(is_among(variable, allowed_variables) for variable in variables):
        return None
    is_in_bounds = all(_is_in_bounds(load, axes) for load in list_loads(call))
    return tuple(axes) if is_in_bounds else None


def _is_in_bounds(load: TensorLoad, axes: Sequence[Any]) -> bool:
    """Tell whether a load is in bounds without the conditions around it."""
    for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
        last = [axis.dom.extent - 1 for axis in axes if axis.var.same_as(index)] or [index]
        if not isinstance(last[0], tirx.IntImm) or not 0 <= int(last[0]) < int(extent):
            return False
    return True


def _count_elements(axes: Sequence[Any]) -> int:
    return math.prod(int(axis.dom.extent) for axis in axes)


def _has_call(call: Call, part: Call) -> bool:
    parts = find_nodes(call, Call)
    return any(tvm_ffi.structural_equal(one, part) for one in parts)


def _build_step(hoisted_call: _Lifted, name: str) -> tuple[Any, Any]:
    """Return the loops that compute a call for all its elements, and the buffer they write."""
    extents = [int(axis.dom.extent) for axis in hoisted_call.axes]
    dtype = str(hoisted_call.axes[-1].var.ty.dtype)
    sizes = [number_of(extent, dtype) for extent in extents]
    buffer = tirx.decl_buffer(sizes, str(hoisted_call.call.ty.dtype), name)
    with IRBuilder() as builder, element_block(name, extents, dtype) as axes:
        values = list(zip([axis.var for axis in hoisted_call.axes], axes, strict=True))
        store_element(buffer[tuple(axes)], replace_variables(hoisted_call.call, values))
    return builder.get(), buffer


def _replace_calls(statement: tvm.tirx.Stmt, hoisted_call: _Lifted, buffer: tvm.ir.Var) -> Any:  # noqa: ANN401 - like the statement
    """Replace a call in loops by a load of its buffer."""
    place = buffer[tuple(axis.var for axis in hoisted_call.axes)]

    def call(old: Call, mutator: tvm_ffi.StructuralMutator) -> Any:  # noqa: ANN401
        is_hoisted = tvm_ffi.structural_equal(old, hoisted_call.call)
        return place if is_hoisted else mutator.default_mutate(old)

    def block(old: SBlock) -> SBlock:
        value = tvm_ffi.structural_mutate(old.body.value, [(Call, call)])
        body = tirx.BufferStore(old.body.buffer, value, old.body.indices)
        reads = [
            load.source[tuple(slice(i, i + 1) for i in load.indices)] for load in list_loads(value)
        ]
        return SBlock(
            old.iter_vars, reads, old.writes, old.name_hint, body, annotations=old.annotations
        )

    return tvm_ffi.structural_map(statement, (SBlock, block))
