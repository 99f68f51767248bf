"""Engine `default` on a GPU: TVM's DLight rules, without measurement.

It takes the first rule that serves a function and whose schedule TVM can also lower: some rules
accept functions that later passes refuse.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import tvm
from tvm.s_tir import Schedule

from autopipe.compiler.library.kernels import refusal
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.planned import Planned
from autopipe.schedules.replay import dump

_REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""All exceptions that rules raise for a function that they do not expect."""


def plan(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the first rule that serves `main`, or None if none does."""
    for rule in rules():
        sch = _applied(rule, module, conditions.target)
        if sch is not None and refusal(sch.mod, conditions.target) is None:
            return Planned(DIRECT, dump(sch.trace), sch.mod)
    return None


@cache
def rules() -> tuple[Any, ...]:
    """Return the rules in the order they are asked; the last one serves whatever has blocks."""
    from tvm.s_tir.dlight import gpu

    kinds: tuple[Callable[[], Any], ...] = (
        gpu.Matmul,
        gpu.GEMV,
        gpu.Reduction,
        gpu.GeneralReduction,
        gpu.Transpose,
        gpu.Fallback,
    )
    return tuple(kind() for kind in kinds)


def _applied(rule: Any, module: tvm.IRModule, target: tvm.target.Target) -> Schedule | None:  # noqa: ANN401 - tvm is not typed
    try:
        with target:
            applied = rule.apply(module["main"], target, False)  # noqa: FBT003 - TVM's signature
    except _REFUSALS:
        return None
    return applied[0] if isinstance(applied, list) else applied
