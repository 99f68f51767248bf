"""Make minima and maxima of floats return NaN where one of their operands is NaN.

TVM's `max(a, b)` is `b` wherever `a > b` is false, so a NaN is lost as `a` and kept as `b`.
One instruction of a processor does the same. So a bound costs nothing, with its operands
in the other order, and two values that may both be NaN cost a comparison and a selection more:

    max(x, 0)            becomes    select(0 > x, 0, x)
    max(most, x)         becomes    select(x == x, select(x > most, x, most), x)

Of long chains, such as the taps of a pool, `join_extrema` takes two operands a comparison.

The pass runs as late as possible, so that earlier passes find minima and maxima. Operands of index
arithmetic stay as they are: a NaN there is no place in a tensor, a bound is one.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

from autopipe.compiler.codegen.join_extrema import is_float, join_extrema
from autopipe.compiler.find_nodes import find_nodes, is_among
from autopipe.compiler.graph.arithmetic import build_let

_CHOICES: Final = (tirx.Max, tirx.Min)


def propagate_nan(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Rewrite minima and maxima of a vectorized kernel so that they propagate NaN."""
    if not any(map(is_float, find_nodes(function.body, *_CHOICES))):
        return function
    has_integers = _has_integers_of_floats(function)
    index_extrema = _find_index_extrema(function) if has_integers else []

    def propagated(choice: Expr) -> Expr:
        if not is_float(choice) or is_among(choice, index_extrema):
            return choice
        return _rewrite_extremum(choice)

    joined_function = function if has_integers else join_extrema(function)
    return tvm_ffi.structural_map(joined_function, [(kind, propagated) for kind in _CHOICES])


def _rewrite_extremum(choice: Expr) -> Expr:
    is_first: Callable[[Expr, Expr], Expr]
    is_first = tirx.GT if isinstance(choice, tirx.Max) else tirx.LT
    if _is_number(choice.a):
        return choice

    def bounded(value: Expr) -> Expr:
        return tirx.Select(is_first(choice.b, value), choice.b, value)

    def chosen(left: Expr, right: Expr) -> Expr:
        first = tirx.Select(is_first(right, left), right, left)
        return tirx.Select(tirx.EQ(right, right), first, right)  # `!=` of TVM is false for NaN

    if _is_number(choice.b):
        return build_let(choice.a, bounded)
    # The second operand is compared with itself: the first one is mostly an accumulator, and a
    # chain of dependent instructions does not get longer.
    return build_let(choice.a, lambda left: build_let(choice.b, lambda right: chosen(left, right)))


def _is_number(value: Expr) -> bool:
    """Tell whether a value is a constant other than NaN."""
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return isinstance(value, tirx.FloatImm) and value.value == value.value


def _has_integers_of_floats(function: tirx.PrimFunc) -> bool:
    conversions: list[bool] = []

    def converted(operand: Expr, result: Expr) -> None:
        conversions.append("float" in str(operand.ty) and "float" not in str(result.ty))

    def call(node: Call) -> None:
        if getattr(node.op, "name", "") == "tirx.reinterpret":
            converted(node.args[0], node)

    tvm_ffi.structural_walk(
        function.body, [(tirx.Cast, lambda cast: converted(cast.value, cast)), (Call, call)]
    )
    return any(conversions)


def _find_index_extrema(function: tirx.PrimFunc) -> list[Expr]:
    """Return the minima and maxima that an index or a stored integer is computed from."""
    values: dict[tvm.ir.Var, list[Expr]] = defaultdict(list)  # of each variable and buffer
    waiting: list[Expr] = []

    def bound(binding: tirx.Bind | tirx.Let) -> None:
        values[binding.var].append(binding.value)

    def store(node: tirx.BufferStore) -> None:
        values[node.buffer].append(node.value)
        waiting.extend(node.indices)
        if "float" not in str(node.value.ty):
            waiting.append(node.value)

    tvm_ffi.structural_walk(function.body, [
        (tirx.Bind, bound),
        (tirx.Let, bound),
        (tirx.BufferStore, store),
        (TensorLoad, lambda load: waiting.extend(load.indices)),
        (tirx.For, lambda loop: waiting.append(loop.extent)),
    ])  # fmt: skip
    extrema: list[Expr] = []
    visits = [
        *((kind, extrema.append) for kind in _CHOICES),
        (tvm.ir.Var, lambda var: waiting.extend(values.pop(var, ()))),
    ]
    while waiting:
        tvm_ffi.structural_walk(waiting.pop(), visits)
    return extrema
