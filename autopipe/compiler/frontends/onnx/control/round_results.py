"""What the functions of a loop take and return."""

from collections.abc import Callable, Sequence

import numpy as np
from tvm.ir import Expr, GenericConst, GlobalVar

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder

Steps = Sequence[GlobalVar]
"""Functions that are called one after the other."""

Calls = Callable[[BlockBuilder, Steps, Sequence[Expr], Sequence[Expr]], list[Expr] | Expr]
"""Emits calls of steps: (builder, steps, what changes from round to round, what does not)."""

RoundResults = Callable[[BlockBuilder, list[Expr], Expr, list[Expr], list[Expr]], list[Expr]]
"""What a round returns: (builder, next number, condition, states, rows)."""


def return_all_but_condition(
    _: BlockBuilder, number: list[Expr], __: Expr, states: list[Expr], rows: list[Expr]
) -> list[Expr]:
    """Return number, states and rows, of a loop whose rounds are counted."""
    return [*number, *states, *rows]


def return_states(
    _: BlockBuilder, number: list[Expr], __: Expr, states: list[Expr], ___: list[Expr]
) -> list[Expr]:
    """Return number and states, of a loop without rows."""
    return [*number, *states]


def read_number(value: Expr | None) -> int | float | bool | None:
    """Return a number that is known, None for any other value."""
    array = value.value.numpy() if isinstance(value, GenericConst) else np.empty(0)
    number: int | float | bool | None = array.reshape(-1)[0] if array.size == 1 else None
    return number
