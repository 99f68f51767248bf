"""Looks into TIR expressions."""

from collections.abc import Callable, Sequence

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm_ffi import structural_mutate, structural_walk

Values = Sequence[tuple[tvm.ir.Var, tvm.ir.Expr]]
"""What variables stand for; they have no hash."""


def loads_of(expression: tvm.ir.Expr) -> list[TensorLoad]:
    """Return the loads in an expression, in order."""
    found: list[TensorLoad] = []
    structural_walk(expression, (TensorLoad, found.append))
    return found


def occurrences(expression: tvm.ir.Expr, var: tvm.ir.Var) -> int:
    """Return how often a variable occurs in an expression."""
    found: list[tvm.ir.Var] = []
    structural_walk(expression, (tvm.ir.Var, found.append))
    return sum(var.same_as(other) for other in found)


def substitute(
    expression: tvm.ir.Expr,
    values: Values,
    load: Callable[[TensorLoad], tvm.ir.Expr | None] = lambda _: None,
) -> tvm.ir.Expr:
    """Return an expression with values for variables, and for those loads that have one."""

    def variable(var: tvm.ir.Var, _: object) -> tvm.ir.Expr:
        return next((value for other, value in values if other.same_as(var)), var)

    def read(found: TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tvm.ir.Expr:
        value = load(found)
        return mutator.default_mutate(found) if value is None else value

    return structural_mutate(expression, [(TensorLoad, read), (tvm.ir.Var, variable)])
