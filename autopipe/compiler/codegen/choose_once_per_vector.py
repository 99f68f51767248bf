"""Write a condition that has one outcome for all elements of a vector as one condition.

TVM does not vectorize a loop with a condition per element: it writes the elements one by one. LLVM
takes seconds to find the vectors again if such a loop is unrolled, as in concatenations of many
channels. Where the border of the condition lies between two vectors, the first element decides.

Example: the second of two tensors begins at 960, which 16 divides.

    for part in unroll(62):
        for i in vectorized(16):
            y[16 * part + i] = a[...] if 16 * part + i < 960 else b[...]

becomes a condition that TVM folds for each part:

            y[16 * part + i] = a[...] if 16 * part < 960 else b[...]
"""

from collections.abc import Sequence

import tvm_ffi
from tvm.ir import Expr, Var
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import For, ForKind, IntImm, PrimFunc, Stmt

from autopipe.compiler.loops.copy_loops import replace_variables
from autopipe.compiler.loops.index_borders import (
    COMPARISONS,
    build_difference,
    is_number,
    is_of_indices,
)


def choose_once_per_vector(function: PrimFunc) -> PrimFunc:
    """Replace conditions that are uniform over a vectorized loop by their first element's."""
    analyzer = Analyzer()
    body = tvm_ffi.structural_map(function.body, (For, lambda loop: _rewrite_loop(loop, analyzer)))
    return function if body.same_as(function.body) else function.with_body(body)


def _rewrite_loop(loop: For, analyzer: Analyzer) -> Stmt:
    if loop.kind != ForKind.VECTORIZED or not is_number(loop.extent) or not _has_zero_start(loop):
        return loop
    values = _read_bindings(loop.body)

    def share(comparison: Expr) -> Expr:
        return _compare_first(comparison, loop, values, analyzer)

    body = tvm_ffi.structural_map(loop.body, (COMPARISONS, share))
    if body.same_as(loop.body):
        return loop
    return For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations
    )


def _has_zero_start(loop: For) -> bool:
    return is_number(loop.min) and int(loop.min) == 0


def _read_bindings(body: Stmt) -> Sequence[tuple[Var, Expr]]:
    """Return (axis, value) of each axis of a block that is the body of a loop."""
    if not isinstance(body, SBlockRealize):
        return ()
    axes = (axis.var for axis in body.block.iter_vars)
    return tuple(zip(axes, body.iter_values, strict=True))


def _compare_first(
    comparison: Expr, loop: For, values: Sequence[tuple[Var, Expr]], analyzer: Analyzer
) -> Expr:
    """Return the comparison of the first element if it is uniform over the loop."""
    if not is_of_indices(comparison):
        return comparison
    inlined_comparison = type(comparison)(
        *(replace_variables(side, values) for side in (comparison.a, comparison.b))
    )
    linear = detect_linear_equation(build_difference(inlined_comparison), [loop.loop_var])
    if len(linear) == 0 or not is_number(linear[0]) or int(linear[0]) == 0:
        return comparison
    if not _is_uniform(int(linear[0]), linear[1], int(loop.extent), analyzer):
        return comparison
    zero = IntImm(str(loop.loop_var.ty), 0)
    return analyzer.simplify(replace_variables(inlined_comparison, [(loop.loop_var, zero)]))


def _is_uniform(step: int, start: Expr, count: int, analyzer: Analyzer) -> bool:
    """Tell whether `start + step * i` has one sign for all 0 <= i < count, whatever `start` is.

    All starts differ by multiples of a period, so it is enough to look at the one that is nearest
    to a change of sign: of `16 * n` with a step of 1, `-16 + i` for i < 16 is negative throughout.
    """
    residue = analyzer.modular_set(start)
    period, base = int(residue.coeff), int(residue.base)
    span = abs(step) * (count - 1)
    if period == 0:  # the start is a number
        return (base < 0) == (base + step * (count - 1) < 0)
    distance = (-1 - base) % period if step > 0 else base % period
    return distance >= span
