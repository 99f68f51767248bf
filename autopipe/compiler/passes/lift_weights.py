"""Lift the computation on weights alone out of `main`: layouts, packing and constants."""

import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.graph.hoist import drop_counts, hoist_weight_work, restore_counts
from autopipe.compiler.graph.split_transform import NotSplitError, split_transform
from autopipe.compiler.graph.weights import TRANSFORM


def lift_weights(module: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Split a module in two: `main` without the work on weights, and a module with only that work.

    The first `num_input` parameters of `main` (an attribute of it) are inputs, the rest weights.
    Bindings are canonical: an alias of a value would remain.
    """
    module = hoist_weight_work(module)
    if len(graph_functions(module)) == 1:
        try:
            return _lift_at_once(module)
        except NotSplitError:
            pass
    lifted_module = transform.LiftTransformParams()(drop_counts(module))
    transforming = lifted_module[TRANSFORM].with_attr("global_symbol", TRANSFORM)
    functions = dict(lifted_module.functions_items())
    main_functions = {
        var: function for var, function in functions.items() if var.name_hint != TRANSFORM
    }
    work_functions = {
        var: function for var, function in functions.items() if var.name_hint != "main"
    }
    dead_code = transform.DeadCodeElimination
    remaining_module = restore_counts(dead_code(["main"])(tvm.IRModule(main_functions)), module)
    work = dead_code([TRANSFORM])(tvm.IRModule(work_functions))
    work.update_func(work.get_global_var(TRANSFORM), transforming)
    return remaining_module, work


def _lift_at_once(module: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Lift weights of a module with `main` as its only Relax function, in linear time.

    Raises NotSplitError.
    """
    entry, functions = module.get_global_var("main"), dict(module.functions_items())
    main, transforming = split_transform(functions[entry])
    remaining_module = tvm.IRModule({**functions, entry: main})
    remaining_module = transform.DeadCodeElimination(["main"])(remaining_module)
    work_functions = {
        var: functions[var]
        for binding in list_bindings(transforming)
        for var in _list_called(binding.value)
    }
    work = relax.BlockBuilder(tvm.IRModule(work_functions))
    work.add_func(transforming, TRANSFORM)
    work_module = work.finalize()
    transform_function = work_module[
        TRANSFORM
    ]  # its type differs from its variable's, as from TVM's pass
    typed_function = relax.Function(
        transform_function.params,
        transform_function.body,
        transform_function.ret_ty,
        transform_function.is_pure,
        transform_function.attrs,
    )
    work_module.update_func(work_module.get_global_var(TRANSFORM), typed_function)
    return remaining_module, work_module


def _list_called(value: relax.Expr) -> list[tvm.ir.GlobalVar]:
    """List the functions that a value calls, by name or as operands."""
    if not isinstance(value, relax.Call):
        return []
    return [f for f in (value.op, *value.args) if isinstance(f, tvm.ir.GlobalVar)]
