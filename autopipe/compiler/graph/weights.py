"""Computes once, at compile time, what depends on weights alone: layouts, packing, constants."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.graph.hoist import hoist, with_counts, without_counts
from autopipe.compiler.graph.legalize import legalize
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.walls import gate

Scheduler = Callable[[tvm.IRModule], tvm.IRModule]
"""Schedules the `main` of a workload module."""

MARK: Final = "meta_schedule.layout_rewrite_preproc"
"""TVM's annotation of a block of a PrimFunc that works on a weight; the build takes it out."""

TRANSFORM = "main_transform_params"
"""Name of the lifted function, which takes a tuple of weights and returns a tuple."""


def free(function: tvm.tirx.PrimFunc) -> list[Any]:
    """Return the parameters of a PrimFunc that are weights, so that their layout may change."""
    positions = (function.attrs or {}).get("layout_free_buffers", [])
    return [function.params[int(position)] for position in positions]


def lift(module: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
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


def evaluate(
    module: tvm.IRModule,
    weights: Sequence[np.ndarray],
    target: tvm.target.Target,
    scheduler: Scheduler,
) -> list[np.ndarray]:
    """Run a module of work on weights and return the transformed weights, in order.

    Raises ForeignCode if the module carries code.
    """
    with target, tvm.transform.PassContext(opt_level=3):
        module = tvm.transform.Sequential(
            [
                transform.AnnotateTIROpPattern(),
                transform.FoldConstant(),
                transform.FuseOps(),
                transform.FuseTIR(),
                transform.DeadCodeElimination([TRANSFORM]),
            ]
        )(legalize(module))
        for name, function in prim_funcs(module):
            alone = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
            scheduled = scheduler(alone)["main"].without_attr("global_symbol")
            module.update_func(module.get_global_var(name), scheduled)
        executable = gate.model(module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in weights]
    return [result.numpy() for result in machine[TRANSFORM](arguments)]
