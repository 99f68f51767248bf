"""Engine `default` on a GPU: TVM's DLight rules, without measurement.

It takes the first rule that serves a function and whose schedule TVM can also lower: some rules
accept functions that later passes refuse. Rules for matmuls pad the reduction with zeros, and take
a minimum of sums for a matmul, so they are tried for sums of products only.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import tvm
from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.library.kernels import find_kernel_refusal
from autopipe.schedules.analysis.blocks import is_product
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Planned
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.replay import dump_trace

_OF_PRODUCTS: Final = frozenset({"Matmul", "GEMV"})
"""Rules that pad the reduction with zeros."""

_REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""All exceptions that rules raise for a function that they do not expect."""


def plan(module: tvm.IRModule, conditions: Conditions) -> Planned | None:
    """Return the schedule of the first rule that serves `main`, or None if none does."""
    has_only_products = _has_only_products(module)
    for rule in list_rules():
        if not has_only_products and type(rule).__name__ in _OF_PRODUCTS:
            continue
        sch = _apply_rule(rule, module, conditions.target)
        if sch is not None and find_kernel_refusal(sch.mod, conditions.target) is None:
            return Planned(DIRECT, dump_trace(sch.trace), sch.mod)
    return None


def _has_only_products(module: tvm.IRModule) -> bool:
    """Tell whether all reductions of `main` are sums of products, which zeros do not change."""
    blocks = find_nodes(module["main"].body, SBlock)
    return all(is_product(block) for block in blocks if block.init is not None)


@cache
def list_rules() -> tuple[Any, ...]:
    """List the rules in the order they are tried; the last one serves all TIR with blocks."""
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


def _apply_rule(rule: Any, module: tvm.IRModule, target: tvm.target.Target) -> Schedule | None:  # noqa: ANN401 - tvm is not typed
    try:
        with target:
            scheduled_function = rule.apply(module["main"], target, False)  # noqa: FBT003 - TVM's signature
    except _REFUSALS:
        return None
    return scheduled_function[0] if isinstance(scheduled_function, list) else scheduled_function
