"""A count of operations with a bound, for where TVM's count is absurd.

TVM takes a loop whose length it does not know for as long as its index can count: it counts 6.7e23
operations for adaptive pooling, whose windows are some pixels longer or shorter than each other.
This takes such a loop for as long as it can be.

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

_COUNTED: Final = (
    tvm.tirx.Add, tvm.tirx.Sub, tvm.tirx.Mul, tvm.tirx.Div, tvm.tirx.Min, tvm.tirx.Max, Call,
)  # fmt: skip

_TRIED: Final = 1 << 12
"""Most places at which the length of a loop is looked at."""


def bound_operations(function: PrimFunc) -> float:
    """Return how many operations a call takes at most; infinite where nothing bounds them."""
    return _bound_statement(function.body, {})


_Ranges = Mapping[Any, int]
"""The variables around a statement, and how many values each takes, from 0."""


def _bound_statement(statement: tvm.tirx.Stmt, around: _Ranges) -> float:
    if isinstance(statement, For):
        steps = _bound_extent(statement.extent, around)
        if math.isinf(steps):
            return math.inf
        return steps * _bound_statement(statement.body, {**around, statement.loop_var: int(steps)})
    if isinstance(statement, SeqStmt):
        return sum(_bound_statement(one, around) for one in statement.seq)
    if isinstance(statement, SBlockRealize):
        axes = {axis.var: axis.dom.extent for axis in statement.block.iter_vars}
        sizes = {axis: int(size) for axis, size in axes.items() if isinstance(size, IntImm)}
        return _bound_statement(statement.block.body, {**around, **sizes})
    if isinstance(statement, BufferStore):
        return float(count_arithmetic(statement.value))
    bodies = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    return sum(_bound_statement(one, around) for one in bodies if one is not None)


def bound_steps(
    extent: int | tvm.ir.Expr, variables: Sequence[Var], extents: Sequence[int]
) -> float:
    """Return the most that a number of steps can be; infinite where nothing bounds it.

    `variables` are those that it may hang on, with as many values each as `extents` say, from 0.
    """
    steps = IntImm("int64", extent) if isinstance(extent, int) else extent
    return _bound_extent(steps, dict(zip(variables, extents, strict=True)))


def _bound_extent(extent: tvm.ir.Expr, around: _Ranges) -> float:
    """Return the most steps that a loop takes; infinite where nothing bounds them."""
    if isinstance(extent, IntImm):
        return float(max(0, int(extent)))
    read: list[Any] = []
    tvm_ffi.structural_walk(extent, (Var, read.append))
    variables = [variable for variable in around if any(variable.same_as(one) for one in read)]
    ranges = [range(around[variable]) for variable in variables]
    if not ranges or math.prod(map(len, ranges)) > _TRIED:
        return math.inf
    places = [list(zip(variables, at, strict=True)) for at in itertools.product(*ranges)]
    lengths = [Analyzer().simplify(_substitute_values(extent, place)) for place in places]
    known = all(isinstance(length, IntImm) for length in lengths)
    return float(max(map(int, lengths), default=0)) if known else math.inf


def _substitute_values(extent: tvm.ir.Expr, values: Sequence[tuple[Any, int]]) -> tvm.ir.Expr:
    """Return an extent with numbers in the place of variables."""

    def number(variable: Var) -> tvm.ir.Expr:
        found = next((value for other, value in values if other.same_as(variable)), None)
        return variable if found is None else IntImm(str(variable.ty), found)

    return tvm_ffi.structural_map(extent, (Var, number))


def count_arithmetic(value: tvm.ir.Expr) -> int:
    """Return the arithmetic in a value, that of indices too: this is a bound."""
    nodes: list[Any] = []
    for kind in _COUNTED:
        tvm_ffi.structural_walk(value, (kind, nodes.append))
    return max(1, len(nodes))
