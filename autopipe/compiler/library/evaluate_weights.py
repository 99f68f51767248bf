"""Compute once, at compile time, what depends on weights alone."""

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.codegen.compile_kernels import compile_model
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.pass_observer import pass_context
from autopipe.compiler.passes.legalize import legalize

Scheduler = Callable[[tvm.IRModule], tvm.IRModule]
"""Schedules the `main` of a workload module."""


def evaluate_weights(
    module: tvm.IRModule,
    weights: Sequence[np.ndarray],
    target: tvm.target.Target,
    scheduler: Scheduler,
) -> list[np.ndarray]:
    """Run a module of work on weights and return the transformed weights, in order.

    Raises ForeignCode if the module carries code.
    """
    with target, pass_context():
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
        executable = compile_model(module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in weights]
    return [result.numpy() for result in machine[TRANSFORM](arguments)]
