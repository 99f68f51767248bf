"""Keeps the weights of matrix products, and tables that rows are looked up in, in bfloat16.

A product of few rows takes as long as its weights take to come from memory, and in bfloat16 they
are half as many bytes. Each weight is rounded once, at compile time. The kernel makes a float32 of
it when it is loaded, which is exact: a bfloat16 is the upper half of a float32. Inputs, products
and sums stay float32.

Example: `matmul(x, w)` of x [1, 4096] and w [4096, 1024], both float32, becomes

    rounded = astype(w, "bfloat16")               # 8 MiB instead of 16; lifted out of `main` later
    matmul(x, rounded, out_dtype="float32")       # sums x[i, k] * float32(rounded[k, j])

and `take(table, words, axis=0)` of a table [30522, 384] float32 becomes

    rounded = astype(table, "bfloat16")
    astype(take(rounded, words, axis=0), "float32")
"""

from collections.abc import Collection, Mapping
from typing import Final, TypeGuard

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.graph.rewrite import rewrite_graph

_WIDE: Final = "float32"
_SHORT: Final = "bfloat16"
_PRODUCT: Final = frozenset({"relax.matmul"})
_LOOKUP: Final = frozenset({"relax.take"})
_MOVES: Final = frozenset(
    f"relax.{name}" for name in ("expand_dims", "flatten", "permute_dims", "reshape", "squeeze")
)
"""Ops that give a weight other axes, and leave its numbers as they are."""
_MATRIX: Final = 2


def round_weights(module: tvm.IRModule, inputs: int) -> tuple[tvm.IRModule, tuple[int, ...]]:
    """Return the module with weights in bfloat16, and which ones these are.

    `main` takes `inputs` inputs and then the weights, which are counted from 0. A weight is left as
    it is if anything reads it but products and lookups of rows.
    """
    weights = list(module["main"].params[inputs:])
    came_from = trace_moved_weights(module["main"], weights)
    left = _find_unroundable(module["main"], came_from)
    chosen = {
        value: weight
        for value, weight in came_from.items()
        if weight not in left and _is_matrix(weight)
    }
    found = set(chosen.values())
    positions = tuple(at for at, weight in enumerate(weights) if weight in found)
    return rewrite_graph(_Rounded(module, chosen.keys()), module), positions


def trace_moved_weights(
    main: relax.Function, weights: Collection[relax.Var]
) -> dict[relax.Var, relax.Var]:
    """Return each value that holds the numbers of one weight, and that weight."""
    found = {weight: weight for weight in weights}
    for binding in list_bindings(main):
        value = binding.value
        if is_call_of(value, _MOVES) and value.args[0] in found:
            found[binding.var] = found[value.args[0]]
    return found


def _find_unroundable(
    main: relax.Function, came_from: Mapping[relax.Var, relax.Var]
) -> set[relax.Var]:
    """Return the weights that something else reads, and those that nothing reads rounded."""
    left, served = set[relax.Var](), set[relax.Var]()
    for binding in list_bindings(main):
        value = binding.value
        read = [came_from[var] for var in relax.analysis.free_vars(value) if var in came_from]
        if _is_rounded_use(value, came_from):
            served.update(read)
        elif binding.var not in came_from:
            left.update(read)
    results = relax.analysis.free_vars(main.body.body)
    left.update(came_from[var] for var in results if var in came_from)
    return (set(came_from.values()) - served) | left


def _is_rounded_use(value: relax.Expr, held: Collection[relax.Var]) -> bool:
    """Tell whether a value is a product with one of these values, or a lookup in one."""
    if is_call_of(value, _LOOKUP):
        return value.args[0] in held and value.args[1] not in held
    return is_call_of(value, _PRODUCT) and sum(arg in held for arg in value.args) == 1


def is_call_of(value: relax.Expr, ops: Collection[str]) -> TypeGuard[relax.Call]:
    """Tell whether a value calls one of these ops."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in ops


def _is_matrix(weight: relax.Var) -> bool:
    return str(weight.ty.dtype) == _WIDE and weight.ty.ndim >= _MATRIX


@mutator
class _Rounded(PyExprMutator):
    """Rounds what products and lookups read of chosen values."""

    def __init__(self, module: tvm.IRModule, chosen: Collection[relax.Var]) -> None:
        super().__init__(module)
        self._chosen = chosen

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        chosen = [arg in self._chosen for arg in call.args]
        rounded = _is_rounded_use(call, self._chosen)
        call = self.visit_expr_post_order(call)
        if not rounded:
            return call
        args = [
            self.builder_.emit(relax.op.astype(arg, _SHORT)) if short else arg
            for arg, short in zip(call.args, chosen, strict=True)
        ]
        if is_call_of(call, _PRODUCT):
            return relax.op.matmul(*args, out_dtype=_WIDE)
        rows = self.builder_.emit(relax.Call(call.op, args, call.attrs))
        return relax.op.astype(rows, _WIDE)
