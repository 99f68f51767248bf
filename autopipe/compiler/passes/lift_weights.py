"""Lift what depends on weights alone out of `main`: layouts, packing and constants."""

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
    """
    module = hoist_weight_work(module)
    if len(graph_functions(module)) == 1:
        try:
            return _lift_at_once(module)
        except NotSplitError:
            pass
    lifted = transform.LiftTransformParams()(drop_counts(module))
    transforming = lifted[TRANSFORM].with_attr("global_symbol", TRANSFORM)
    functions = dict(lifted.functions_items())
    kept = {var: function for var, function in functions.items() if var.name_hint != TRANSFORM}
    alone = {var: function for var, function in functions.items() if var.name_hint != "main"}
    dead_code = transform.DeadCodeElimination
    rest = restore_counts(dead_code(["main"])(tvm.IRModule(kept)), module)
    work = dead_code([TRANSFORM])(tvm.IRModule(alone))
    work.update_func(work.get_global_var(TRANSFORM), transforming)
    return rest, work


def _lift_at_once(module: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Do the same for a module whose only graph is `main`, in linear time.

    Raises NotSplitError.
    """
    entry, functions = module.get_global_var("main"), dict(module.functions_items())
    main, transforming = split_transform(functions[entry])
    rest = transform.CanonicalizeBindings()(tvm.IRModule({**functions, entry: main}))
    rest = transform.DeadCodeElimination(["main"])(rest)
    called = {
        var: functions[var]
        for one in list_bindings(transforming)
        for var in _list_called(one.value)
    }
    work = relax.BlockBuilder(tvm.IRModule(called))
    work.add_func(transforming, TRANSFORM)
    lifted = work.finalize()
    made = lifted[TRANSFORM]  # has a type apart from its variable's, as from TVM's pass
    own = relax.Function(made.params, made.body, made.ret_ty, made.is_pure, made.attrs)
    lifted.update_func(lifted.get_global_var(TRANSFORM), own)
    return rest, lifted


def _list_called(value: relax.Expr) -> list[tvm.ir.GlobalVar]:
    """Return the functions that a value calls, by name or as operands."""
    if not isinstance(value, relax.Call):
        return []
    return [one for one in (value.op, *value.args) if isinstance(one, tvm.ir.GlobalVar)]
