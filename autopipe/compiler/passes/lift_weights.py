"""Lift what depends on weights alone out of `main`: layouts, packing and constants."""

import tvm
from tvm.relax import transform

from autopipe.compiler.graph.hoist import hoist, with_counts, without_counts
from autopipe.compiler.graph.weights import TRANSFORM


def lift_weights(module: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Split a module in two: `main` without the work on weights, and a module with only that work.

    The first `num_input` parameters of `main` (an attribute of it) are inputs, the rest weights.
    """
    module = hoist(module)
    lifted = transform.LiftTransformParams()(without_counts(module))
    transforming = lifted[TRANSFORM].with_attr("global_symbol", TRANSFORM)
    functions = dict(lifted.functions_items())
    kept = {var: function for var, function in functions.items() if var.name_hint != TRANSFORM}
    alone = {var: function for var, function in functions.items() if var.name_hint != "main"}
    dead_code = transform.DeadCodeElimination
    rest = with_counts(dead_code(["main"])(tvm.IRModule(kept)), module)
    work = dead_code([TRANSFORM])(tvm.IRModule(alone))
    work.update_func(work.get_global_var(TRANSFORM), transforming)
    return rest, work
