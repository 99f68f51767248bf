"""Evaluate the part of a graph that depends on weights alone, once at compile time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.codegen.compile_kernels import compile_kernel, compile_model
from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.graph.literals import read_sizes
from autopipe.compiler.graph.rewrite import read_op_name
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.loops.element_copies import ElementCopies
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.pass_observer import pass_context
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.compiler.step_counter import count_each

_Move = Callable[[np.ndarray, relax.Call], np.ndarray]

_MOVES: Final[Mapping[str, _Move]] = {
    "relax.permute_dims": lambda array, call: array.transpose(
        None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
    ),
    "relax.expand_dims": lambda array, call: array.reshape(read_sizes(call.ty.shape.values)),
    "relax.reshape": lambda array, call: array.reshape(read_sizes(call.ty.shape.values)),
    "relax.flip": lambda array, call: np.flip(array, int(call.attrs.axis)),
}
"""Data movement ops of Relax, as NumPy does them: compiling a kernel for each weight
takes most of the time of a build."""

_CALL: Final = "relax.call_tir"

_PLAIN: Final = 2
"""Arguments of a call of a PrimFunc that takes tensors alone: the function, and a tuple of them."""

_Kernel = Callable[[Sequence[np.ndarray], tvm.ir.Type], list[np.ndarray]]
"""Does the work of a PrimFunc: takes its sources, and the type of its result."""

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
    if _has_only_moves(module[TRANSFORM]):
        return _move_weights(module, weights, _prepare_kernels(module, target, scheduler))
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
            scheduled_function = _schedule_function(function, scheduler).without_attr(
                "global_symbol"
            )
            module.update_func(module.get_global_var(name), scheduled_function)
        executable = compile_model(module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in weights]
    return [result.numpy() for result in machine[TRANSFORM](arguments)]


def _schedule_function(function: tvm.tirx.PrimFunc, scheduler: Scheduler) -> tvm.tirx.PrimFunc:
    kernel_module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return scheduler(kernel_module)["main"]


def _prepare_kernels(
    module: tvm.IRModule, target: tvm.target.Target, scheduler: Scheduler
) -> dict[str, _Kernel]:
    """Map each PrimFunc to a kernel: copies run in NumPy, the others are compiled together."""
    kernels: dict[str, _Kernel] = {}
    computing: dict[str, tvm.tirx.PrimFunc] = {}
    for name, function in list_prim_funcs(module):
        if copies := ElementCopies.of(function):
            kernels[name] = partial(_copy_elements, copies)
        else:
            scheduled_function = _schedule_function(function, scheduler)
            computing[name] = scheduled_function.with_attr("global_symbol", name)
    if computing:
        with pass_context():
            library = compile_kernel(tvm.IRModule(computing), target)
        kernels |= {name: partial(_call_kernel, library[name]) for name in computing}
    return kernels


def _copy_elements(
    copies: ElementCopies, sources: Sequence[np.ndarray], _: tvm.ir.Type
) -> list[np.ndarray]:
    return copies.apply(sources)


def _call_kernel(
    function: Callable[..., object], sources: Sequence[np.ndarray], kind: tvm.ir.Type
) -> list[np.ndarray]:
    """Run a compiled kernel and return its outputs; `kind` is the type of its result."""
    kinds = list(kind.fields) if isinstance(kind, tvm.ir.TupleType) else [kind]
    arguments = [tvm.runtime.tensor(array) for array in sources]
    results = [
        tvm.runtime.empty([int(extent) for extent in output.shape.values], str(output.dtype))
        for output in kinds
    ]
    function(*arguments, *results)
    return [result.numpy() for result in results]


def _has_only_moves(function: relax.Function) -> bool:
    """Tell whether a function calls only PrimFuncs and ops that move elements."""
    constants = find_nodes(function, tvm.ir.GenericConst)
    bound_values = [binding.value for binding in list_bindings(function)]
    calls = [value for value in bound_values if isinstance(value, relax.Call)]
    return not constants and all(
        read_op_name(call) in _MOVES or (read_op_name(call) == _CALL and len(call.args) == _PLAIN)
        for call in calls
    )


def _move_weights(
    module: tvm.IRModule, weights: Sequence[np.ndarray], kernels: Mapping[str, _Kernel]
) -> list[np.ndarray]:
    """Transform weights by NumPy and kernels, where Relax only moves elements and calls them."""
    function = module[TRANSFORM]
    (parameter,) = function.params
    values: dict[relax.Expr, Sequence[np.ndarray]] = {parameter: weights}
    for binding in count_each("steps of packing run", list(list_bindings(function))):
        values[binding.var] = _evaluate(binding.value, values, kernels)
    results = _evaluate(function.body.body, values, kernels)
    return [np.asarray(array, order="C") for array in count_each("weights copied", results)]


def _evaluate(
    value: relax.Expr,
    values: Mapping[relax.Expr, Sequence[np.ndarray]],
    kernels: Mapping[str, _Kernel],
) -> Sequence[np.ndarray]:
    """Return the arrays of a tuple or of one tensor."""
    if value in values:
        return values[value]
    if isinstance(value, relax.Tuple):
        return [values[field][0] for field in value.fields]
    if isinstance(value, relax.TupleGetItem):
        return [values[value.tuple_value][value.index]]
    assert isinstance(value, relax.Call)  # noqa: S101 - as `_has_only_moves` found
    name, first = read_op_name(value), value.args[0]
    if name in _MOVES:
        return [_MOVES[name](values[first][0], value)]
    return kernels[str(first.name_hint)](_evaluate(value.args[1], values, kernels), value.ty)
