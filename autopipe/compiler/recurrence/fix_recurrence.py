"""Specialize recurrent layers of dynamic steps or batch for static sizes.

Templates match the form of a layer, which needs static sizes.
"""

from functools import partial

import tvm
from tvm import relax, tirx

from autopipe.compiler.graph.calls import find_callee, list_result_types
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.recurrence.form import ATTRIBUTE, Recurrence, parse_any
from autopipe.compiler.recurrence.plain import build_loops


def bind_recurrent_sizes(module: tvm.IRModule) -> tvm.IRModule:
    """Rebuild recurrent layers of a module with steps and batch that have become static."""
    if not any(open_form(function) for function in module.functions.values()):
        return module
    specialized_module = rewrite_calls(partial(_specialize_layer, module), module)
    return relax.transform.DeadCodeElimination()(specialized_module)


def open_form(function: object) -> Recurrence | None:
    """Return the form of a function that is a recurrent layer with dynamic sizes, or None."""
    if not isinstance(function, tirx.PrimFunc):
        return None
    form = parse_any(str((function.attrs or {}).get(ATTRIBUTE, "")))
    return form if form is not None and form.is_open else None


def _specialize_layer(module: tvm.IRModule, site: CallSite) -> relax.Expr:
    """Rewrite a call of a recurrent layer with dynamic sizes."""
    call = site.call
    if find_callee(call) is None:
        return call
    form = open_form(module[call.args[0]])
    steps, batch, _ = call.args[1].fields[0].ty.shape.values if form else (None,) * 3
    if form is None or not (isinstance(steps, tirx.IntImm) and isinstance(batch, tirx.IntImm)):
        return call
    static_form = form.model_copy(update={"steps": int(steps), "batch": int(batch)})
    function = site.builder.add_func(build_loops(static_form), form.kind.lower())
    return relax.call_tir(function, call.args[1], list_result_types(call))
