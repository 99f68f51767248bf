"""Add a function `main_into` that writes the outputs of a model to memory of its caller.

    main(x, w):                            main_into(x, w, into_0):
      y = call_tir(matmul, (x, w))           y = call_tir_inplace(matmul, (x, w, into_0), [2])
      return y                               return y

Both call the same kernels. `main_into` takes a tensor for each output and returns the results of
`main`: the tensor itself where a kernel writes to it, otherwise another one, such as an input.
"""

from collections.abc import Mapping
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.artifacts.signature import MAIN_INTO
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.graph.literals import count_bytes, has_static_sizes
from autopipe.compiler.pass_state import LinkState
from autopipe.compiler.target.target import backend_of

WORTH: Final = 256 << 10
"""Bytes of outputs from which a copy takes more than 10 us."""


def add_destinations(module: tvm.IRModule, state: LinkState) -> tvm.IRModule:
    """Add `main_into` to a module with outputs of static shapes that are large enough.

    A model with dynamic shapes has none: its callers do not know output shapes. A GPU's outputs are
    in device memory.
    """
    if not backend_of(state.target).runs_on_host:
        return module
    main = relax.utils.copy_with_new_vars(module["main"])
    outputs = _list_outputs(main)
    if outputs is None or not all(has_static_sizes(var.ty) for var in outputs):
        return module
    if any(isinstance(param.ty, relax.ShapeType) for param in main.params):
        return module
    kernel_results = {
        binding.var for binding in list_bindings(main) if find_callee(binding.value) is not None
    }
    places_by_output = {
        var: place for place, var in reversed([*enumerate(outputs)]) if var in kernel_results
    }
    if sum(count_bytes(var.ty) for var in places_by_output) < WORTH:
        return module
    tensors = [relax.Var(f"into_{place}", var.ty) for place, var in enumerate(outputs)]
    destinations = {var: tensors[place] for var, place in places_by_output.items()}
    body = _Destinations(module, destinations).visit_expr(main.body)
    attributes = {**dict(main.attrs or {}), "global_symbol": MAIN_INTO}
    function = relax.Function([*main.params, *tensors], body, main.ret_ty, main.is_pure)
    extended_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    extended_module[MAIN_INTO] = function.with_attr(attributes)
    return extended_module


def _list_outputs(main: relax.Function) -> list[relax.Var] | None:
    """List the variables of a function's results; None if a result is no variable."""
    values: dict[relax.Expr, relax.Expr] = {b.var: b.value for b in list_bindings(main)}

    def resolve(value: relax.Expr) -> relax.Expr:
        while isinstance(bound := values.get(value), relax.Var | relax.Tuple):
            value = bound
        return value

    result = resolve(main.body.body)
    fields = result.fields if isinstance(result, relax.Tuple) else [result]
    outputs = [out for field in fields if isinstance(out := resolve(field), relax.Var)]
    return outputs if len(outputs) == len(fields) else None


@mutator
class _Destinations(PyExprMutator):
    """Passes destination tensors to kernels."""

    def __init__(self, module: tvm.IRModule, destinations: Mapping[relax.Var, relax.Var]) -> None:
        super().__init__(module)
        self._destinations = destinations

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        into = self._destinations.get(binding.var)
        if into is None:
            super().visit_var_binding_(binding)
            return
        kernel, operands, *sizes = binding.value.args
        arguments = [*self.visit_expr(operands).fields, into]
        call = relax.op.call_tir_inplace(
            kernel, arguments, [len(arguments) - 1], binding.value.ty_args[0], *sizes
        )
        variable, value = self.visit_var_def(binding.var), self.builder_.normalize(call)
        self.builder_.emit_normalized(relax.VarBinding(variable, value))
