"""Moves work on weights out of loops and branches, to where it is done once.

A function of a body is called with weights among its arguments. What it computes of these alone,
such as a kernel in another layout, it is given instead: its callers compute it, and give it on,
up to `main`, from where all work on weights is lifted out.
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
"""Attribute of a function: how many of its parameters, the first ones, are not weights."""


@dataclass(slots=True)
class _CalledBody:
    """A function that others call, and what has become of it."""

    params: Sequence[relax.Var]
    """As they were."""
    kept: list[int]
    """Positions of the parameters that are left, in their new order."""
    work: list[tuple[relax.Var, relax.Expr]]
    """What callers compute, over the parameters as they were."""
    given: list[relax.Var]
    """What of it they give in addition."""
    variable: tvm.ir.GlobalVar | None = None
    """The new function."""


def hoist_weight_work(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with work on weights alone done in `main`.

    The other functions of the graph then take their weights last, and say how many come before.
    """
    functions = {str(var.name_hint): function for var, function in graph_functions(module)}
    order = sort_callers_first(functions, "main")
    if len(order) == 1:
        return module
    weights = _find_weight_params(functions, order)
    others = {v: f for v, f in module.functions_items() if str(v.name_hint) not in functions}
    builder = relax.BlockBuilder(tvm.IRModule(others))
    done: dict[str, _CalledBody] = {}
    for name in reversed(order):
        function = _Calls(builder.get(), done).visit_expr(functions[name])
        if name != "main":
            function, done[name] = _split_weight_work(function, weights[name], module)
            done[name].variable = builder.add_func(function, name)
        else:
            builder.add_func(function, name)
    return relax.transform.EliminateCommonSubexpr()(builder.get())


def drop_counts(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the attribute `COUNT` at `main` alone."""
    changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module)[1:]:
        if COUNT in (function.attrs or {}):
            changed.update_func(variable, function.without_attr(COUNT))
    return changed


def restore_counts(module: tvm.IRModule, like: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the attribute `COUNT` at the functions that have it in another."""
    counts = {
        str(var.name_hint): int(function.attrs[COUNT])
        for var, function in graph_functions(like)[1:]
        if COUNT in (function.attrs or {})
    }
    for variable, function in graph_functions(module)[1:]:
        if str(variable.name_hint) in counts:
            counted = function.with_attr(COUNT, counts[str(variable.name_hint)])
            module.update_func(variable, counted)
    return module


def _find_weight_params(
    functions: dict[str, relax.Function], order: list[str]
) -> dict[str, set[int]]:
    """Return which parameters of each function are weights wherever it is called."""
    main = functions["main"]
    count = int((main.attrs or {}).get(COUNT, len(main.params)))
    found = {name: set(range(len(functions[name].params))) for name in order}
    found["main"] = set(range(count, len(main.params)))
    for name in order:
        own = {functions[name].params[at] for at in found[name]}
        for call in list_function_calls(functions[name]):
            called = str(call.op.name_hint)
            if called in found:
                found[called] -= {at for at, arg in enumerate(call.args) if arg not in own}
    return found


def _split_weight_work(
    function: relax.Function, weights: set[int], module: tvm.IRModule
) -> tuple[relax.Function, _CalledBody]:
    """Return a function without its work on weights, and what it needs instead."""
    params = list(function.params)
    extract = _Extract(module, {params[at] for at in weights})
    body = extract.visit_expr(function.body)
    read = set(relax.analysis.free_vars(body))
    given = [variable for variable, _ in extract.work if variable in read]
    first = [at for at in range(len(params)) if at not in weights]
    last = [at for at in sorted(weights) if params[at] in read]
    changed = relax.Function(
        [params[at] for at in (*first, *last)] + given,
        body,
        function.ret_ty,
        function.is_pure,
        function.attrs,
    ).with_attr(COUNT, len(first))
    return changed, _CalledBody(params, [*first, *last], extract.work, given)


@mutator
class _Extract(PyExprMutator):
    """Takes bindings out of a function that read weights alone."""

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
        moved = self.visit_expr(value)
        same = (var for var, known in self.work if tvm_ffi.structural_equal(known, moved))
        variable = next(same, None)
        if variable is None:
            variable = relax.Var(binding.var.name, binding.var.ty)
            self.work.append((variable, moved))
        self._known |= {binding.var, variable}
        self.set_var_remap(binding.var, variable)


def _is_hoistable(value: relax.Expr) -> bool:
    """Tell whether a value is computed by an op: those of weights have no effect."""
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)


@mutator
class _Calls(PyExprMutator):
    """Gives the functions that were split what they need."""

    def __init__(self, module: tvm.IRModule, done: dict[str, _CalledBody]) -> None:
        super().__init__(module)
        self._done = done

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        name = str(call.op.name_hint) if isinstance(call.op, tvm.ir.GlobalVar) else ""
        if name not in self._done:
            return self.visit_expr_post_order(call)
        body = self._done[name]
        assert body.variable is not None  # noqa: S101 - each of them was added to the module
        arguments = [self.visit_expr(argument) for argument in call.args]
        values = dict(zip(body.params, arguments, strict=True))
        for variable, value in body.work:
            values[variable] = self.builder_.emit(_substitute_variables(value, values))
        kept = [arguments[at] for at in body.kept]
        return relax.Call(body.variable, [*kept, *(values[variable] for variable in body.given)])


def _substitute_variables(value: relax.Expr, values: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """Return what an op computes of other values."""
    if isinstance(value, relax.Var):
        return values.get(value, value)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_substitute_variables(field, values) for field in value.fields])
    if isinstance(value, relax.Call):
        arguments = [_substitute_variables(argument, values) for argument in value.args]
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)
    return value
