"""Parameters and results of the functions of a loop."""

from collections.abc import Callable, Sequence

import numpy as np
from tvm.ir import Expr, GenericConst, GlobalVar

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder

Steps = Sequence[GlobalVar]
"""Functions that are called in order."""

Values = Sequence[Expr]
"""Values that functions of a loop pass to each other."""

Calls = Callable[[BlockBuilder, Steps, Values, Values], list[Expr] | Expr]
"""Emits calls of steps: (builder, steps, loop-carried values, loop invariants)."""

RoundResults = Callable[[BlockBuilder, list[Expr], Expr, list[Expr], list[Expr]], list[Expr]]
"""Builds the results of a round: (builder, next number, condition, states, rows)."""


def return_all_but_condition(
    _: BlockBuilder, number: list[Expr], __: Expr, states: list[Expr], rows: list[Expr]
) -> list[Expr]:
    """Return counter, states and rows of a loop with constant trip count."""
    return [*number, *states, *rows]


def return_states(
    _: BlockBuilder, number: list[Expr], __: Expr, states: list[Expr], ___: list[Expr]
) -> list[Expr]:
    """Return counter and states of a loop without rows."""
    return [*number, *states]


def read_number(value: Expr | None) -> int | float | bool | None:
    """Return a constant scalar, None for any other value."""
    array = value.value.numpy() if isinstance(value, GenericConst) else np.empty(0)
    number: int | float | bool | None = array.reshape(-1)[0] if array.size == 1 else None
    return number
