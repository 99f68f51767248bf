"""Collects the distinct calls of operators of a graph, to try something on each of them once."""

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.calls import graph_functions, list_bindings


def collect_distinct_calls(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose functions compute one of all equal calls of operators, and no more.

    Calls are equal that differ in their variables alone. These are parameters. A function with
    dynamic shapes stays as it is.
    """
    changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        if not relax.analysis.defined_symbolic_vars(function):
            changed.update_func(variable, _keep_distinct(function))
    return changed


def _keep_distinct(function: relax.Function) -> relax.Function:
    calls: dict[int, list[relax.Call]] = {}
    for binding in list_bindings(function):
        call = binding.value
        if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
            equal = calls.setdefault(tvm_ffi.structural_hash(call, map_free_vars=True), [])
            if not any(tvm_ffi.structural_equal(one, call, map_free_vars=True) for one in equal):
                equal.append(call)
    params: dict[relax.Var, relax.Var] = {}

    def as_parameter(variable: relax.Var) -> relax.Var:
        return params.setdefault(variable, relax.Var(variable.name, variable.ty))

    kept = [
        relax.VarBinding(
            relax.Var("result", call.ty),
            tvm_ffi.structural_map(call, (relax.Var, as_parameter)),
        )
        for equal in calls.values()
        for call in equal
    ]
    results = relax.Tuple([binding.var for binding in kept])
    body = relax.SeqExpr([relax.BindingBlock(kept)], results)
    made = relax.BlockBuilder().normalize(body)
    return relax.Function(list(params.values()), made, made.ty, function.is_pure)
