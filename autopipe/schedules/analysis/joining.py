"""Derives the combiner of two partial results of a reduction from its steps.

A step combines a result with an element. Where an element has the form of a result, the same step
combines two results. That requires a commutative and associative reducer, which is proved here by
enumeration of a few values, among which are ties.

Example: at = select(most >= x[k], at, k), most = max(most, x[k]) keeps the first of equal
elements. Combined in another order it would keep another one, so there is no combiner.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.schedules.analysis.reducer import Reducer

Join = Callable[[Sequence[Expr], Sequence[Expr]], list[Expr]]
"""Combines the partial results of two groups of elements."""

_PLAIN: Final = (tirx.Add, tirx.Mul, tirx.Min, tirx.Max, tirx.And, tirx.Or)

_MOST_RESULTS: Final = 2
_VALUES: Final = (0, 1, 2)


def find_join(reducer: Reducer, sums: Sequence[Any]) -> Join | None:
    """Return the combiner of partial results, or None; `sums` are the loop variables."""
    candidates = [find_element(reducer, i) for i in range(len(reducer.values))]
    elements = [element for element in candidates if element is not None]
    if len(elements) < len(candidates):
        return None
    variables = [tirx.Var(f"other{i}", e.ty) for i, e in enumerate(elements)]
    forms = [_replace_elements(value, elements, variables) for value in reducer.values]
    if any(_has_other_reads(form, reducer, sums) for form in forms):
        return None

    def join(left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        def place(load: TensorLoad) -> Expr:
            at = reducer.place(load)
            return load if at is None else left[at]

        def value(var: tirx.Var) -> Expr:
            return next(
                (o for v, o in zip(variables, right, strict=True) if v.same_as(var)),
                var,
            )

        return [
            tvm_ffi.structural_map(
                tvm_ffi.structural_map(form, (tirx.Var, value)), (TensorLoad, place)
            )
            for form in forms
        ]

    if len(forms) == 1 and isinstance(reducer.values[0], _PLAIN):
        return join
    types = [str(value.ty.dtype) for value in reducer.values]
    return join if len(forms) <= _MOST_RESULTS and _is_order_independent(join, types) else None


def find_element(reducer: Reducer, position: int) -> Expr | None:
    """Return the operand of a step that is not the result itself, or None."""
    value = reducer.values[position]
    if isinstance(value, tirx.Select):
        operands = [value.true_value, value.false_value]
    elif isinstance(value, _PLAIN):
        operands = [value.a, value.b]
    else:
        return None
    is_own_result = [
        isinstance(side, TensorLoad) and reducer.place(side) == position for side in operands
    ]
    element = operands[is_own_result.index(False)] if is_own_result.count(True) == 1 else None
    if element is None or any(reducer.place(load) is not None for load in list_loads(element)):
        return None
    return element


def _replace_elements(value: Expr, elements: Sequence[Any], variables: Sequence[tirx.Var]) -> Expr:
    """Replace the elements in a step by variables."""
    pairs = zip(elements, variables, strict=True)
    for element, variable in sorted(pairs, key=lambda pair: -len(str(pair[0]))):  # x[k] before k
        kind, replacer = type(element), _make_replacer(element, variable)
        value = tvm_ffi.structural_map(value, (kind, replacer))
    return value


def _make_replacer(element: tvm.ir.Expr, variable: tirx.Var) -> Callable[[Any], Any]:
    return lambda part: variable if tvm_ffi.structural_equal(element, part) else part


def _has_other_reads(form: Expr, reducer: Reducer, sums: Sequence[Any]) -> bool:
    """Tell whether a step reads anything other than results and elements."""
    variables = find_nodes(form, tirx.Var)
    if any(variable.same_as(one) for variable in variables for one in sums):
        return True
    return any(reducer.place(load) is None for load in list_loads(form))


def _is_order_independent(join: Join, types: Sequence[str]) -> bool:
    """Tell whether a combiner is commutative and associative for a few values."""

    def at(values: Sequence[float]) -> list[Expr]:
        return [tirx.const(value, dtype) for value, dtype in zip(values, types, strict=True)]

    results = list(itertools.product(map(float, _VALUES), repeat=len(types)))
    try:
        table = {
            (one, other): tuple(map(_fold_constant, join(at(one), at(other))))
            for one, other in itertools.product(results, repeat=2)
        }
    except TypeError:  # an operation without a constant evaluation
        return False
    if any(table[one, other] != table[other, one] for one, other in table):
        return False
    if not set(table.values()) <= set(results):
        return False
    triples = itertools.product(results, repeat=3)
    return all(table[table[a, b], c] == table[a, table[b, c]] for a, b, c in triples)


def _fold_constant(value: Expr) -> float:
    """Evaluate an expression of constants. Raises TypeError if TVM does not fold it."""
    folded = Analyzer().simplify(value)
    if not isinstance(folded, tirx.IntImm | tirx.FloatImm):
        raise TypeError(f"{value} has no constant evaluation")
    return float(folded.value)
