"""Replace copies that change nothing but the shape by views.

    y = call_tir(reshape, x): [batch, length, 4, 32]    ->    y = reshape(x, [batch, length, 4, 32])

TVM does so as the last step before code generation. By then schedules have rewritten loops in forms
that its analysis does not recognize, so it is done here, on unscheduled functions. If the analysis
fails on one, it stays a copy.
"""

from collections.abc import Mapping
from math import prod
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.dynamic_sizes.kernel_sizes import is_dynamic
from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph.calls import find_callee, graph_functions
from autopipe.compiler.module_io import list_prim_funcs

RESHAPE: Final = "relax.reshape"
"""The op of a view, which needs no kernel."""


def replace_copies_by_views(module: tvm.IRModule) -> tvm.IRModule:
    """Replace such copies of a lowered module by views, and remove their kernels."""
    copies = {name: at for name, function in list_prim_funcs(module)
              if (at := _find_copied_input(function)) is not None}  # fmt: skip
    if not copies:
        return module
    new_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    callees: set[str] = set()
    for variable, function in graph_functions(module):
        new_function = _Views(module, copies).visit_expr(function)
        new_module.update_func(variable, new_function)
        callees |= _list_called_functions(new_function)
    unused_kernels = copies.keys() - callees
    remaining_functions = {
        var: body
        for var, body in new_module.functions_items()
        if str(var.name_hint) not in unused_kernels
    }
    return tvm.IRModule(remaining_functions, attrs=module.attrs)


def replace_dynamic_copies(module: tvm.IRModule) -> tvm.IRModule:
    """Replace such copies of a module with dynamic shapes, before kernels become tasks.

    No schedule is planned, compiled and checked for a kernel that no library has. A static graph
    keeps its tasks, and has views from *build* on.
    """
    return replace_copies_by_views(module) if is_dynamic(module) else module


def _find_copied_input(function: tvm.tirx.PrimFunc) -> int | None:
    """Return the position of the only input, if a function copies it in memory order, or None."""
    tensors = [param for param in function.params if isinstance(param.ty, tvm.tirx.BufferType)]
    if len(tensors) != 2 or tensors[0].ty.dtype != tensors[1].ty.dtype:  # noqa: PLR2004 - in and out
        return None
    # the first half of a tensor is in memory order, too
    before, after = (prod(param.ty.shape, start=1) for param in tensors)
    if not tvm.sym.Analyzer().can_prove_equal(before, after):
        return None
    try:
        copies = relax.analysis.has_reshape_pattern(function)
    except tvm.error.InternalError:
        return None
    positions = (at for at, param in enumerate(function.params) if param.same_as(tensors[0]))
    return next(positions) if copies else None


def _list_called_functions(function: relax.Function) -> set[str]:
    return {str(variable.name_hint) for variable in find_nodes(function, tvm.ir.GlobalVar)}


@mutator
class _Views(PyExprMutator):
    """Replaces calls of copies, except for results of the model, which must not be its inputs."""

    def __init__(self, module: tvm.IRModule, copies: Mapping[str, int]) -> None:
        super().__init__(module)
        self._copies = copies

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = binding.value
        at = self._copies.get(find_callee(call) or "")
        if at is None or not isinstance(binding.var, relax.DataflowVar):
            super().visit_var_binding_(binding)
            return
        source, shape = self.visit_expr(call.args[1].fields[at]), call.ty_args[0].shape
        self.set_var_remap(binding.var, self.builder_.emit(relax.op.reshape(source, shape)))
