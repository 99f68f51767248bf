"""Specialize recurrent layers of dynamic steps or batch for static sizes.

Templates match the form of a layer, which needs static sizes.
"""

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import find_callee, graph_functions
from autopipe.compiler.recurrence.form import ATTRIBUTE, Recurrence, parse_any
from autopipe.compiler.recurrence.plain import build_loops


def bind_recurrent_sizes(module: tvm.IRModule) -> tvm.IRModule:
    """Rebuild recurrent layers of a module with steps and batch that have become static."""
    if not any(open_form(function) for function in module.functions.values()):
        return module
    specializer = _Specializer(module)
    for variable, function in graph_functions(module):
        specializer.builder_.update_func(variable, specializer.visit_expr(function))
    return relax.transform.DeadCodeElimination()(specializer.builder_.get())


def open_form(function: object) -> Recurrence | None:
    """Return the form of a function that is a recurrent layer with dynamic sizes, or None."""
    if not isinstance(function, tirx.PrimFunc):
        return None
    form = parse_any(str((function.attrs or {}).get(ATTRIBUTE, "")))
    return form if form is not None and form.is_open else None


@mutator
class _Specializer(PyExprMutator):
    """Replaces calls of recurrent layers with dynamic sizes by specialized ones."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite a call of a recurrent layer with dynamic sizes."""
        call = self.visit_expr_post_order(call)
        if find_callee(call) is None:
            return call
        form = open_form(self._module[call.args[0]])
        steps, batch, _ = call.args[1].fields[0].ty.shape.values if form else (None,) * 3
        if form is None or not (isinstance(steps, tirx.IntImm) and isinstance(batch, tirx.IntImm)):
            return call
        static_form = form.model_copy(update={"steps": int(steps), "batch": int(batch)})
        function = self.builder_.add_func(build_loops(static_form), form.kind.lower())
        return relax.call_tir(function, call.args[1], list(_list_result_types(call)))


def _list_result_types(call: relax.Call) -> list[tvm.ir.Type]:
    (result_type,) = call.ty_args
    return list(result_type.fields) if isinstance(result_type, relax.TupleType) else [result_type]
