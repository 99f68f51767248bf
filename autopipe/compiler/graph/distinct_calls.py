"""Collect the distinct op calls of a graph, to process each of them once."""

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.calls import graph_functions, list_bindings


def collect_distinct_calls(module: tvm.IRModule) -> tvm.IRModule:
    """Reduce the functions of a module to one of all equal op calls.

    Calls are equal if they differ in their variables alone. These become parameters. A function
    with dynamic shapes stays unchanged.
    """
    distinct_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        if not relax.analysis.defined_symbolic_vars(function):
            distinct_module.update_func(variable, _keep_distinct(function))
    return distinct_module


def _keep_distinct(function: relax.Function) -> relax.Function:
    calls: dict[int, list[relax.Call]] = {}
    for binding in list_bindings(function):
        call = binding.value
        if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
            equal = calls.setdefault(tvm_ffi.structural_hash(call, map_free_vars=True), [])
            if not any(tvm_ffi.structural_equal(c, call, map_free_vars=True) for c in equal):
                equal.append(call)
    params: dict[relax.Var, relax.Var] = {}

    def as_parameter(variable: relax.Var) -> relax.Var:
        return params.setdefault(variable, relax.Var(variable.name, variable.ty))

    result_bindings = [
        relax.VarBinding(
            relax.Var("result", call.ty),
            tvm_ffi.structural_map(call, (relax.Var, as_parameter)),
        )
        for equal in calls.values()
        for call in equal
    ]
    results = relax.Tuple([binding.var for binding in result_bindings])
    body = relax.SeqExpr([relax.BindingBlock(result_bindings)], results)
    new_body = relax.BlockBuilder().normalize(body)
    return relax.Function(list(params.values()), new_body, new_body.ty, function.is_pure)
