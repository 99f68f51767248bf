"""Hoist work on weights out of loops and branches, to where it is done once.

A function of a loop body or branch has weights among its arguments. Values computed from these
alone, such as a kernel in another layout, become arguments instead: its callers compute and pass
them, up to `main`, from where all work on weights is lifted out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import (
    graph_functions,
    list_function_calls,
    sort_callers_first,
)

COUNT: Final = "num_input"
"""Attribute of a function: the number of leading parameters that are not weights."""


@dataclass(slots=True)
class _CalledBody:
    """A function that others call, and its new signature."""

    params: Sequence[relax.Var]
    """The old parameters."""
    kept: list[int]
    """Positions of the remaining old parameters, in their new order."""
    work: list[tuple[relax.Var, relax.Expr]]
    """The hoisted bindings, in terms of the old parameters."""
    given: list[relax.Var]
    """The hoisted variables that callers pass in addition."""
    variable: tvm.ir.GlobalVar | None = None
    """The new function."""


def hoist_weight_work(module: tvm.IRModule) -> tvm.IRModule:
    """Hoist all work on weights alone to `main`.

    The other functions of the graph then take their weights last, with the attribute `COUNT`.
    """
    functions = {str(var.name_hint): function for var, function in graph_functions(module)}
    order = sort_callers_first(functions, "main")
    if len(order) == 1:
        return module
    weights = _find_weight_params(functions, order)
    kernels = {v: f for v, f in module.functions_items() if str(v.name_hint) not in functions}
    builder = relax.BlockBuilder(tvm.IRModule(kernels))
    bodies: dict[str, _CalledBody] = {}
    for name in reversed(order):
        function = _Calls(builder.get(), bodies).visit_expr(functions[name])
        if name != "main":
            function, bodies[name] = _split_weight_work(function, weights[name], module)
            bodies[name].variable = builder.add_func(function, name)
        else:
            builder.add_func(function, name)
    return relax.transform.EliminateCommonSubexpr()(builder.get())


def drop_counts(module: tvm.IRModule) -> tvm.IRModule:
    """Remove the attribute `COUNT` from all functions but `main`."""
    new_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module)[1:]:
        if COUNT in (function.attrs or {}):
            new_module.update_func(variable, function.without_attr(COUNT))
    return new_module


def restore_counts(module: tvm.IRModule, like: tvm.IRModule) -> tvm.IRModule:
    """Copy the attribute `COUNT` from the functions of another module."""
    counts = {
        str(var.name_hint): int(function.attrs[COUNT])
        for var, function in graph_functions(like)[1:]
        if COUNT in (function.attrs or {})
    }
    for variable, function in graph_functions(module)[1:]:
        if str(variable.name_hint) in counts:
            counted_function = function.with_attr(COUNT, counts[str(variable.name_hint)])
            module.update_func(variable, counted_function)
    return module


def _find_weight_params(
    functions: dict[str, relax.Function], order: list[str]
) -> dict[str, set[int]]:
    """Find the parameters of each function that are weights at all of its calls."""
    main = functions["main"]
    count = int((main.attrs or {}).get(COUNT, len(main.params)))
    weight_positions = {name: set(range(len(functions[name].params))) for name in order}
    weight_positions["main"] = set(range(count, len(main.params)))
    for name in order:
        weight_variables = {functions[name].params[at] for at in weight_positions[name]}
        for call in list_function_calls(functions[name]):
            callee = str(call.op.name_hint)
            if callee in weight_positions:
                weight_positions[callee] -= {
                    at for at, arg in enumerate(call.args) if arg not in weight_variables
                }
    return weight_positions


def _split_weight_work(
    function: relax.Function, weights: set[int], module: tvm.IRModule
) -> tuple[relax.Function, _CalledBody]:
    """Split the work on weights off a function; return the function and its new signature."""
    params = list(function.params)
    extract = _Extract(module, {params[at] for at in weights})
    body = extract.visit_expr(function.body)
    read = set(relax.analysis.free_vars(body))
    hoisted_variables = [variable for variable, _ in extract.work if variable in read]
    first = [at for at in range(len(params)) if at not in weights]
    last = [at for at in sorted(weights) if params[at] in read]
    new_function = relax.Function(
        [params[at] for at in (*first, *last)] + hoisted_variables,
        body,
        function.ret_ty,
        function.is_pure,
        function.attrs,
    ).with_attr(COUNT, len(first))
    return new_function, _CalledBody(params, [*first, *last], extract.work, hoisted_variables)


@mutator
class _Extract(PyExprMutator):
    """Removes the bindings of a function that read weights alone."""

    def __init__(self, module: tvm.IRModule, weights: set[relax.Var]) -> None:
        super().__init__(module)
        self._known = weights
        self.work: list[tuple[relax.Var, relax.Expr]] = []

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        read = relax.analysis.free_vars(value)
        if (
            not _is_hoistable(value)
            or not read
            or not all(variable in self._known for variable in read)
        ):
            super().visit_var_binding_(binding)
            return
        new_value = self.visit_expr(value)
        equal_variables = (
            var for var, value in self.work if tvm_ffi.structural_equal(value, new_value)
        )
        variable = next(equal_variables, None)
        if variable is None:
            variable = relax.Var(binding.var.name, binding.var.ty)
            self.work.append((variable, new_value))
        self._known |= {binding.var, variable}
        self.set_var_remap(binding.var, variable)


def _is_hoistable(value: relax.Expr) -> bool:
    """Tell whether a value is computed by an op, which has no side effects on weights."""
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)


@mutator
class _Calls(PyExprMutator):
    """Rewrites the calls of split functions to their new signatures."""

    def __init__(self, module: tvm.IRModule, bodies: dict[str, _CalledBody]) -> None:
        super().__init__(module)
        self._bodies = bodies

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        name = str(call.op.name_hint) if isinstance(call.op, tvm.ir.GlobalVar) else ""
        if name not in self._bodies:
            return self.visit_expr_post_order(call)
        body = self._bodies[name]
        assert body.variable is not None  # noqa: S101 - each was added to the module
        arguments = [self.visit_expr(argument) for argument in call.args]
        values = dict(zip(body.params, arguments, strict=True))
        for variable, value in body.work:
            values[variable] = self.builder_.emit(_substitute_variables(value, values))
        remaining_arguments = [arguments[at] for at in body.kept]
        return relax.Call(
            body.variable, [*remaining_arguments, *(values[variable] for variable in body.given)]
        )


def _substitute_variables(value: relax.Expr, values: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """Substitute values for variables in the operands of an op."""
    if isinstance(value, relax.Var):
        return values.get(value, value)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_substitute_variables(field, values) for field in value.fields])
    if isinstance(value, relax.Call):
        arguments = [_substitute_variables(argument, values) for argument in value.args]
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)
    return value
