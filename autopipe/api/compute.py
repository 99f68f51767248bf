"""Convert a compute declaration to the one PrimFunc that is scheduled."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import tvm
from tvm import te
from tvm.ir import Call, StringImm, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, For, ForKind, IntImm, PrimFunc

from autopipe.api.free_layouts import drop_unpaid_free_layouts
from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.compiler.loops.exact_divisions import protect_divisions
from autopipe.compiler.loops.zero_based_axes import normalize_domains
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.walls.names import EXTERNS, PACKED
from autopipe.errors import ModelError
from autopipe.schedules.analysis.blocks import is_spatial

Compute: TypeAlias = "tvm.IRModule | PrimFunc | Sequence[te.Tensor]"
"""A PrimFunc, a module with one, or TE tensors: inputs, then results."""

_LOOPS: Final = frozenset({ForKind.SERIAL, ForKind.UNROLLED})
"""Kinds of loops that a declaration may have."""

_SCAN: Final = "te.ScanOp"
"""In TVM's error for a recurrence, which it no longer lowers to functions."""

_NAMED: Final = frozenset(
    f"tirx.{name}"
    for name in ("tvm_call_packed", "tvm_call_cpacked", "call_extern", "call_pure_extern")
)
"""Ops that call a function named by an argument."""

_ROOT: Final = "root"
"""TVM's name of the block around all others."""


def to_declared_module(compute: Compute) -> tvm.IRModule:
    """Build the module of the one unscheduled PrimFunc.

    Raises ModelError if there is not exactly one, if a size is symbolic or negative, if it is
    scheduled already, if results are not last, or if TE tensors compute nothing. Loops inside
    opaque blocks may be scheduled.
    """
    function = protect_divisions(normalize_domains(_to_prim_func(compute)))
    name = str((function.attrs or {}).get("global_symbol", "main"))
    if not all(isinstance(size, IntImm) for size in _list_sizes(function)):
        raise ModelError(f"{name} cannot be tuned: a dimension is symbolic; bind it to a number")
    if any(int(size) < 0 for size in _list_sizes(function)):
        raise ModelError(f"{name}: a dimension is negative: pass tensors of 0 and more elements")
    _check_callable(function, name)
    _check_results_last(function, name)
    blocks = find_nodes(function.body, SBlock)
    opaque_loops = [
        loop for block in blocks if _is_opaque(block) for loop in find_nodes(block.body, For)
    ]
    loops = [loop for loop in find_nodes(function.body, For) if not is_among(loop, opaque_loops)]
    if any(loop.kind not in _LOOPS or loop.thread_binding for loop in loops):
        raise ModelError(f"{name} is scheduled already: pass the function as it was declared")
    for block in blocks:
        if is_spatial(block) and _has_own_output_read(block):
            raise ModelError(
                f"{name}: block {block.name_hint} reads what it writes, but says iterations are"
                " independent: declare an axis with T.axis.scan, or write to another tensor"
            )
    if not blocks:
        raise ModelError(f"{name} has no blocks: pass what te.create_prim_func or TVMScript made")
    return tvm.IRModule({"main": drop_unpaid_free_layouts(function)})


def _is_opaque(block: SBlock) -> bool:
    """Whether a block declares neither axes nor accesses, such as TVM's cumulative sum."""
    return block.name_hint != _ROOT and not (block.iter_vars or block.reads or block.writes)


def _has_own_output_read(block: SBlock) -> bool:
    """Whether a block reads the buffer that it writes: some tiles are computed twice."""
    store = block.body
    return isinstance(store, BufferStore) and any(
        load.source.same_as(store.buffer) for load in list_loads(store.value)
    )


def _to_prim_func(compute: object) -> PrimFunc:
    if isinstance(compute, PrimFunc):
        return compute
    if isinstance(compute, tvm.IRModule):
        functions = list_prim_funcs(compute)
        if len(functions) == 1:
            return functions[0][1]
        names = f": {', '.join(name for name, _ in functions)}" if functions else ""
        raise ModelError(
            f"a module with one PrimFunc is needed; this one has {len(functions)}{names}"
        )
    arguments = list(compute) if isinstance(compute, Iterable) else [compute]
    tensors = [tensor for tensor in arguments if isinstance(tensor, te.Tensor)]
    if not tensors or len(tensors) < len(arguments):
        raise ModelError("a PrimFunc, a module with one, or a list of TE tensors is needed")
    _check_tensors(tensors)
    try:
        return te.create_prim_func(tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        if _SCAN in reason:
            reason += " Write a scan as loops in TVMScript, with T.axis.scan."
        elif missing := _find_missing_input(tensors):
            reason = f"{missing} is read and not among them: pass inputs, then results"
        raise ModelError(f"TVM makes no function of these TE tensors: {reason}") from None


def _check_tensors(tensors: Sequence[te.Tensor]) -> None:
    """Raise ModelError for tensors that TVM lowers to no function, or to a different one."""
    if all(isinstance(tensor.op, te.PlaceholderOp) for tensor in tensors):
        raise ModelError("these TE tensors are placeholders only: pass the result, too")
    for at, tensor in enumerate(tensors):
        if is_among(tensor, tensors[:at]):
            raise ModelError(f"{tensor.op.name} is passed twice: pass each input and result once")
    for tensor in _list_all_tensors(tensors):
        _check_reduction(tensor)


def _check_reduction(tensor: te.Tensor) -> None:
    """Raise ModelError for parts of a reduction that TVM drops silently."""
    for value in tensor.op.body if isinstance(tensor.op, te.ComputeOp) else ():
        if not isinstance(value, te.Reduce):
            continue
        if not isinstance(value.condition, IntImm):
            raise ModelError(
                f"{tensor.op.name}: TVM leaves out the condition of a reduction (`where`): pass"
                " tirx.if_then_else(condition, value, what it starts with) as its value"
            )
        if len(value.init):
            raise ModelError(
                f"{tensor.op.name}: TVM leaves out what a reduction starts with (`init`): add it"
                " in a compute of its own"
            )


def _check_callable(function: PrimFunc, name: str) -> None:
    """Raise ModelError for a function that calls others, or has strided parameters."""
    calls = find_nodes(function.body, Call)
    for call in calls:
        if getattr(call.op, "name", "") in _NAMED:
            callee = next((str(one.value) for one in call.args if isinstance(one, StringImm)), "")
            if callee not in PACKED | EXTERNS:
                raise ModelError(
                    f"{name} calls {callee}, which is no compute: write it as te.compute, or pass"
                    " what comes before it and what comes after it, each as a function"
                )
    for param in function.params:
        shape, strides = list(getattr(param, "shape", ())), list(getattr(param, "strides", ()))
        compact = [math.prod(map(int, shape[axis + 1 :])) for axis, _ in enumerate(shape)]
        if (
            all(isinstance(n, IntImm) for n in strides)
            and list(map(int, strides or compact)) != compact
        ):
            raise ModelError(
                f"{name}: {param.name} has gaps between its rows: pass a tensor without strides"
            )


def _check_results_last(function: PrimFunc, name: str) -> None:
    """Raise ModelError where an input comes after a result: calls pass inputs first."""
    loads = find_nodes(function.body, TensorLoad)
    stores = find_nodes(function.body, BufferStore)
    is_written = [any(one.buffer.same_as(param) for one in stores) for param in function.params]
    for at, param in enumerate(function.params):
        if (
            any(is_written[:at])
            and not is_written[at]
            and any(o.source.same_as(param) for o in loads)
        ):
            raise ModelError(f"{name}: input {param.name} comes after a result: pass results last")


def _find_missing_input(tensors: Sequence[te.Tensor]) -> str | None:
    """Return the name of an input that is missing among the tensors, or None."""
    inputs = [one for one in _list_all_tensors(tensors) if isinstance(one.op, te.PlaceholderOp)]
    is_passed = (is_among(one, tensors) for one in inputs)
    missing = (str(one.op.name) for one, there in zip(inputs, is_passed, strict=True) if not there)
    return next(missing, None)


def _list_all_tensors(results: Sequence[te.Tensor]) -> list[te.Tensor]:
    """List tensors and all their transitive inputs."""
    left, visited = list(results), list(results)
    while left:
        for tensor in left.pop().op.input_tensors:
            if not is_among(tensor, visited):
                visited.append(tensor)
                left.append(tensor)
    return visited


def _list_sizes(function: PrimFunc) -> list[Any]:
    return [size for param in function.params if hasattr(param, "shape") for size in param.shape]
