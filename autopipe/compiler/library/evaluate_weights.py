"""Evaluate the part of a graph that depends on weights alone, once at compile time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.codegen.compile_kernels import compile_model
from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.loops.element_copies import ElementCopies
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.pass_observer import pass_context
from autopipe.compiler.passes.legalize import legalize_ops

_Move = Callable[[np.ndarray, relax.Call], np.ndarray]

_MOVES: Final[Mapping[str, _Move]] = {
    "relax.permute_dims": lambda array, call: array.transpose(
        None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
    ),
    "relax.expand_dims": lambda array, call: array.reshape(_read_shape(call)),
    "relax.reshape": lambda array, call: array.reshape(_read_shape(call)),
    "relax.flip": lambda array, call: np.flip(array, int(call.attrs.axis)),
}
"""Data movement ops of Relax, as NumPy does them: compiling a kernel for each weight
takes most of the time of a build."""

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
    moved_weights = _move_weights(module, weights)
    if moved_weights is not None:
        return moved_weights
    with target, pass_context():
        module = tvm.transform.Sequential(
            [
                transform.AnnotateTIROpPattern(),
                transform.FoldConstant(),
                transform.FuseOps(),
                transform.FuseTIR(),
                transform.DeadCodeElimination([TRANSFORM]),
            ]
        )(legalize_ops(module))
        for name, function in list_prim_funcs(module):
            workload = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
            scheduled_function = scheduler(workload)["main"].without_attr("global_symbol")
            module.update_func(module.get_global_var(name), scheduled_function)
        executable = compile_model(module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in weights]
    return [result.numpy() for result in machine[TRANSFORM](arguments)]


def _move_weights(module: tvm.IRModule, weights: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Transform weights by NumPy if the module only moves elements, otherwise return None."""
    function = module[TRANSFORM]
    (parameter,) = function.params
    values: dict[relax.Expr, Sequence[np.ndarray]] = {parameter: weights}
    for binding in list_bindings(function):
        arrays = _apply_move(binding.value, values, module)
        if arrays is None:
            return None
        values[binding.var] = arrays
    results = _apply_move(function.body.body, values, module)
    return None if results is None else [np.asarray(array, order="C") for array in results]


def _apply_move(
    value: relax.Expr, values: Mapping[relax.Expr, Sequence[np.ndarray]], module: tvm.IRModule
) -> Sequence[np.ndarray] | None:
    """Evaluate data movement of `values` to the arrays of a value; None for computation."""
    if value in values:
        return values[value]
    if isinstance(value, relax.Tuple) and all(field in values for field in value.fields):
        return [values[field][0] for field in value.fields]
    if isinstance(value, relax.TupleGetItem) and value.tuple_value in values:
        return [values[value.tuple_value][value.index]]
    return _apply_call(value, values, module) if isinstance(value, relax.Call) else None


def _apply_call(
    call: relax.Call, values: Mapping[relax.Expr, Sequence[np.ndarray]], module: tvm.IRModule
) -> Sequence[np.ndarray] | None:
    name = _read_op_name(call)
    if name == "relax.call_tir":
        copies = ElementCopies.of(module[call.args[0]])
        sources = None if copies is None else _apply_move(call.args[1], values, module)
        return None if copies is None or sources is None else copies.apply(sources)
    if name in _MOVES and call.args[0] in values:
        return [_MOVES[name](values[call.args[0]][0], call)]
    return None


def _read_op_name(call: relax.Call) -> str:
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""


def _read_shape(call: relax.Call) -> list[int]:
    return [int(extent) for extent in call.ty.shape.values]
