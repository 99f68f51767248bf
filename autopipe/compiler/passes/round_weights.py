"""Store the weights of matmuls, and lookup tables, in bfloat16.

A matmul of few rows is bound by the memory bandwidth of its weights, and in bfloat16 they are half
as many bytes. Each weight is rounded once, at compile time. The kernel converts it to float32 when
it is loaded, which is exact: a bfloat16 is the upper half of a float32. Inputs, products and sums
stay float32.

Example: `matmul(x, w)` of x [1, 4096] and w [4096, 1024], both float32, becomes

    rounded = astype(w, "bfloat16")               # 8 MiB instead of 16; lifted out of `main` later
    matmul(x, rounded, out_dtype="float32")       # sums x[i, k] * float32(rounded[k, j])

and `take(table, words, axis=0)` of a table [30522, 384] float32 becomes

    rounded = astype(table, "bfloat16")
    astype(take(rounded, words, axis=0), "float32")
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, TypeGuard

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.graph.rewrite import CallSite, read_op_name, rewrite_calls

_WIDE: Final = "float32"
_SHORT: Final = "bfloat16"
_PRODUCT: Final = frozenset({"relax.matmul"})
_LOOKUP: Final = frozenset({"relax.take"})
_MOVES: Final = frozenset(
    f"relax.{name}" for name in ("expand_dims", "flatten", "permute_dims", "reshape", "squeeze")
)
"""Ops that change the shape of a weight, but not its values."""
_MATRIX: Final = 2


def round_weights(module: tvm.IRModule, inputs: int) -> tuple[tvm.IRModule, tuple[int, ...]]:
    """Round weights of a module to bfloat16; return it and the positions of these weights.

    `main` takes `inputs` inputs and then the weights, which are counted from 0. A weight with other
    readers than matmuls and row lookups stays in float32.
    """
    weights = list(module["main"].params[inputs:])
    came_from = trace_moved_weights(module["main"], weights)
    unroundable_weights = _find_unroundable(module["main"], came_from)
    sources = {
        value: weight
        for value, weight in came_from.items()
        if weight not in unroundable_weights and _is_matrix(weight)
    }
    rounded_weights = set(sources.values())
    positions = tuple(at for at, weight in enumerate(weights) if weight in rounded_weights)
    return rewrite_calls(partial(_round_operands, sources.keys()), module), positions


def trace_moved_weights(
    main: relax.Function, weights: Collection[relax.Var]
) -> dict[relax.Var, relax.Var]:
    """Map each value that has the elements of one weight to that weight."""
    sources = {weight: weight for weight in weights}
    for binding in list_bindings(main):
        value = binding.value
        if is_call_of(value, _MOVES) and value.args[0] in sources:
            sources[binding.var] = sources[value.args[0]]
    return sources


def _find_unroundable(
    main: relax.Function, came_from: Mapping[relax.Var, relax.Var]
) -> set[relax.Var]:
    """Find the weights with other readers, and those without a matmul or lookup."""
    other_weights, roundable_weights = set[relax.Var](), set[relax.Var]()
    for binding in list_bindings(main):
        value = binding.value
        read = [came_from[var] for var in relax.analysis.free_vars(value) if var in came_from]
        if _is_rounded_use(value, came_from):
            roundable_weights.update(read)
        elif binding.var not in came_from:
            other_weights.update(read)
    results = relax.analysis.free_vars(main.body.body)
    other_weights.update(came_from[var] for var in results if var in came_from)
    return (set(came_from.values()) - roundable_weights) | other_weights


def _is_rounded_use(value: relax.Expr, weight_values: Collection[relax.Var]) -> bool:
    """Tell whether a value is a matmul with one of these values, or a lookup in one."""
    if is_call_of(value, _LOOKUP):
        return value.args[0] in weight_values and value.args[1] not in weight_values
    return is_call_of(value, _PRODUCT) and sum(arg in weight_values for arg in value.args) == 1


def is_call_of(value: relax.Expr, ops: Collection[str]) -> TypeGuard[relax.Call]:
    """Tell whether a value calls one of these ops."""
    return isinstance(value, relax.Call) and read_op_name(value) in ops


def _is_matrix(weight: relax.Var) -> bool:
    return str(weight.ty.dtype) == _WIDE and weight.ty.ndim >= _MATRIX


def _round_operands(weight_values: Collection[relax.Var], site: CallSite) -> relax.Expr:
    """Round the weights of a matmul or lookup."""
    call = site.call
    if not _is_rounded_use(site.original, weight_values):
        return call
    args = [
        site.emit(relax.op.astype(arg, _SHORT)) if original in weight_values else arg
        for arg, original in zip(call.args, site.original.args, strict=True)
    ]
    if is_call_of(call, _PRODUCT):
        return relax.op.matmul(*args, out_dtype=_WIDE)
    rows = site.emit(relax.Call(call.op, args, call.attrs))
    return relax.op.astype(rows, _WIDE)
