"""Make each runtime shape once per call, not once per tensor.

    s1 = make_shape(heap, 3, batch, length, 128)            s1 = make_shape(heap, 3, ...)
    a = alloc_tensor(storage1, s1)                    ->    a = alloc_tensor(storage1, s1)
    s2 = make_shape(heap, 3, batch, length, 128)            b = alloc_tensor(storage2, s1)
    b = alloc_tensor(storage2, s2)

Making a shape takes as long as a small kernel. Sizes in the heap are written once, before the
first shape that they are part of.
"""

from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal

from autopipe.compiler.graph.calls import graph_functions

_MAKER: Final = "vm.builtin.make_shape"


def share_shapes(module: tvm.IRModule) -> tvm.IRModule:
    """Reuse equal shapes in the functions of a module that is lowered to the Relax VM."""
    shared_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        shared_module.update_func(variable, _Shapes(module).visit_expr(function))
    return shared_module


@mutator
class _Shapes(PyExprMutator):
    """Reuses the first of equal shapes; shapes of a branch go out of scope at its end."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._shapes: list[tuple[relax.Call, relax.Var]] = []

    def visit_seq_expr_(self, body: relax.SeqExpr) -> relax.Expr:
        outer_count = len(self._shapes)
        sequence = self.visit_expr_post_order(body)
        del self._shapes[outer_count:]
        return sequence

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if not _is_heap_shape(binding.value):
            super().visit_var_binding_(binding)
            return
        value = self.visit_expr(binding.value)
        for previous, shape in self._shapes:
            if structural_equal(value, previous):
                self.set_var_remap(binding.var, shape)
                return
        super().visit_var_binding_(binding)
        self._shapes.append((value, self.visit_expr(binding.var)))


def _is_heap_shape(value: relax.Expr) -> bool:
    """Tell whether a value makes a shape of sizes in the heap."""
    return (
        isinstance(value, relax.Call)
        and isinstance(value.op, relax.ExternFunc)
        and str(value.op.global_symbol) == _MAKER
    )
