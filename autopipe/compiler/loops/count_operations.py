"""Upper bounds of operation counts, for loops of data-dependent length.

TVM assumes the largest value of the index type for a loop of unknown extent: it counts 6.7e23
operations for adaptive pooling with windows that differ by some pixels. This module takes the
largest extent that occurs.

Example: adaptive pooling of 56 rows to 6 has windows of 9 to 11 rows, `(i * 56 + 61) // 6 - i * 56
// 6` of them. With i from 0 to 5 that is at most 11.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Call
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, For, IntImm, PrimFunc, SeqStmt, Var

from autopipe.compiler.find_nodes import find_nodes, is_among

_COUNTED: Final = (
    tvm.tirx.Add, tvm.tirx.Sub, tvm.tirx.Mul, tvm.tirx.Div, tvm.tirx.Min, tvm.tirx.Max, Call,
)  # fmt: skip

_TRIED: Final = 1 << 12
"""Most combinations of outer indices for which the extent of a loop is computed."""


def bound_operations(function: PrimFunc) -> float:
    """Return an upper bound of the operations of a call; infinity without a bound."""
    return _bound_statement(function.body, {})


_Ranges = Mapping[Any, int]
"""The number of values of each variable around a statement, from 0."""


def _bound_statement(statement: tvm.tirx.Stmt, around: _Ranges) -> float:
    if isinstance(statement, For):
        steps = _bound_extent(statement.extent, around)
        if math.isinf(steps):
            return math.inf
        return steps * _bound_statement(statement.body, {**around, statement.loop_var: int(steps)})
    if isinstance(statement, SeqStmt):
        return sum(_bound_statement(child, around) for child in statement.seq)
    if isinstance(statement, SBlockRealize):
        axes = {axis.var: axis.dom.extent for axis in statement.block.iter_vars}
        sizes = {axis: int(size) for axis, size in axes.items() if isinstance(size, IntImm)}
        return _bound_statement(statement.block.body, {**around, **sizes})
    if isinstance(statement, BufferStore):
        return float(count_arithmetic(statement.value))
    bodies = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    return sum(_bound_statement(body, around) for body in bodies if body is not None)


def bound_steps(
    extent: int | tvm.ir.Expr, variables: Sequence[Var], extents: Sequence[int]
) -> float:
    """Return an upper bound of a loop extent; infinity without a bound.

    It may depend on `variables`, each of which counts from 0 below its entry of `extents`.
    """
    steps = IntImm("int64", extent) if isinstance(extent, int) else extent
    return _bound_extent(steps, dict(zip(variables, extents, strict=True)))


def _bound_extent(extent: tvm.ir.Expr, around: _Ranges) -> float:
    """Return an upper bound of the steps of a loop; infinity without a bound."""
    if isinstance(extent, IntImm):
        return float(max(0, int(extent)))
    read_variables = find_nodes(extent, Var)
    variables = [variable for variable in around if is_among(variable, read_variables)]
    ranges = [range(around[variable]) for variable in variables]
    if not ranges or math.prod(map(len, ranges)) > _TRIED:
        return math.inf
    places = [list(zip(variables, at, strict=True)) for at in itertools.product(*ranges)]
    lengths = [Analyzer().simplify(_substitute_values(extent, place)) for place in places]
    is_constant = all(isinstance(length, IntImm) for length in lengths)
    return float(max(map(int, lengths), default=0)) if is_constant else math.inf


def _substitute_values(extent: tvm.ir.Expr, values: Sequence[tuple[Any, int]]) -> tvm.ir.Expr:
    """Substitute numbers for variables in an extent."""

    def number(variable: Var) -> tvm.ir.Expr:
        value = next((value for other, value in values if other.same_as(variable)), None)
        return variable if value is None else IntImm(str(variable.ty), value)

    return tvm_ffi.structural_map(extent, (Var, number))


def count_arithmetic(value: tvm.ir.Expr) -> int:
    """Count the arithmetic operations of a value, including its indices: an upper bound."""
    return max(1, len(find_nodes(value, *_COUNTED)))
