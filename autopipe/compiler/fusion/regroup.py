"""Read the groups of `FuseOps`, and build the functions of changed groups.

Example: before fusion `main` is

    lv = conv2d(x, w); lv1 = add(lv, b); gv = relu(lv1)

`FuseOps` makes of it, and `read_groups` finds the group ("lv", "lv1", "gv"):

    gv = fused_conv2d_add_relu(x, w, b)

With the groups ("lv", "lv1") and ("gv",), `replace_groups` builds

    lv1 = fused_conv2d_add(x, w, b); gv = relu(lv1)
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import tvm
from tvm import relax

from autopipe.compiler.fusion.graph_steps import Unfused, Value, make_argument_key, make_binding_key
from autopipe.compiler.graph.calls import (
    find_callee,
    find_fused_function,
    graph_functions,
    list_bindings,
)

Groups = Sequence[tuple[str, ...]]
"""Names of the steps of each function."""


@dataclass(frozen=True, slots=True)
class Fused:
    """The result of `FuseOps` in terms of the steps before fusion."""

    values: Mapping[relax.Var, Value]
    """The value of each new variable before fusion."""
    steps: Mapping[relax.Var, tuple[str, ...]]
    """The steps that a binding computes, by its variable."""

    @property
    def groups(self) -> Groups:
        """The steps of each function."""
        return list(self.steps.values())


def read_groups(module: tvm.IRModule, before: Unfused) -> Fused:
    """Find the steps that each binding after `FuseOps` computes."""
    functions = graph_functions(module)
    values: dict[relax.Var, Value] = {p: p.name for _, graph in functions for p in graph.params}
    steps: dict[relax.Var, tuple[str, ...]] = {}
    for function, graph in functions:
        read_value = partial(_resolve_binding, str(function.name_hint), before)
        for binding in list_bindings(graph):
            variable, value = binding.var, binding.value
            fused_function = find_fused_function(module, value)
            if fused_function is None:
                values[variable] = read_value(value, variable.name, values)
                if find_callee(value) is not None:
                    steps[variable] = (str(values[variable]),)
                continue
            parameters = zip(fused_function.params, value.args, strict=True)
            inner = {param: _resolve_argument(argument, values) for param, argument in parameters}
            for step in list_bindings(fused_function):
                inner[step.var] = read_value(step.value, step.var.name, inner)
            calls = (
                inner[step.var]
                for step in list_bindings(fused_function)
                if find_callee(step.value) is not None
            )
            steps[variable] = tuple(str(name) for name in calls)
            values[variable] = _resolve_argument(fused_function.body.body, inner)
    return Fused(values, steps)


def replace_groups(
    module: tvm.IRModule, before: Unfused, fused_groups: Fused, groups: Groups
) -> tvm.IRModule:
    """Replace the functions of `FuseOps` by functions of `groups`.

    Both partition the same steps. Groups that are those of `FuseOps` keep their functions.
    """
    old_groups = set(fused_groups.groups)
    new_groups = [group for group in groups if group not in old_groups and group[0] in before.calls]
    return _Regrouped(module, before, fused_groups, new_groups).module if new_groups else module


def _resolve_binding(
    place: str, before: Unfused, value: relax.Expr, name: str, values: Mapping[relax.Var, Value]
) -> Value:
    """Return the value before fusion of a binding that calls no function of `FuseOps`."""
    if isinstance(value, relax.TupleGetItem) and isinstance(values[value.tuple_value], tuple):
        return values[value.tuple_value][value.index]
    if isinstance(value, relax.Tuple | relax.Var):
        return _resolve_argument(value, values)
    return before.found.get((place, make_binding_key(value, name, values)), name)


def _resolve_argument(value: relax.Expr, values: Mapping[relax.Var, Value]) -> Value:
    """Return the value of an argument before fusion."""
    if isinstance(value, relax.Var):
        return values[value]
    if isinstance(value, relax.Tuple):
        return tuple(_resolve_argument(field, values) for field in value.fields)
    return value


class Functions:
    """Builds functions of groups of steps, as `FuseOps` would."""

    def __init__(self, module: tvm.IRModule, before: Unfused) -> None:
        self._before = before
        self._module = module
        self.reads = {step.name: step.reads for step in before.steps}
        """Operands of each step, by name."""
        self.readers: dict[str, list[str]] = {step.name: [] for step in before.steps}
        """Readers of each step, by name and in order."""
        for step in before.steps:
            for read in step.reads:
                self.readers[read].append(step.name)

    def alone(self, group: Sequence[str]) -> tvm.IRModule:
        """Build a module with a `main` that only calls the function of a group, named `fused`."""
        function, _ = self.function(group, [name for name in group if self.is_read(name, group)])
        names = {find_callee(self._before.calls[name]) or "" for name in group}
        callees = [self._module.get_global_var(name) for name in sorted(names)]
        builder = relax.BlockBuilder(tvm.IRModule({var: self._module[var] for var in callees}))
        fused_function = builder.add_func(function, "fused")
        params = [relax.Var(param.name, param.ty) for param in function.params]
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(relax.Call(fused_function, params)))
        return builder.get()

    def is_read(self, name: str, group: Sequence[str]) -> bool:
        """Tell whether a step is read outside of its group."""
        return name in self._before.returned or any(
            reader not in group for reader in self.readers[name]
        )

    def function(
        self, group: Sequence[str], results: Sequence[str]
    ) -> tuple[relax.Function, list[relax.Expr]]:
        """Build the function that computes `results` of a group; return it and its arguments."""
        inside: dict[Hashable, relax.Var] = {}
        arguments_by_key: dict[Hashable, relax.Expr] = {}
        for name in group:
            for argument in self._before.calls[name].args[1]:
                key = make_argument_key(argument, self._before.names)
                if key not in group and key not in arguments_by_key:
                    name_of_param = (
                        key if isinstance(key, str) else f"param_{len(arguments_by_key)}"
                    )
                    inside[key], arguments_by_key[key] = (
                        relax.Var(name_of_param, argument.ty),
                        argument,
                    )
        builder = relax.BlockBuilder()
        params = list(inside.values())
        with builder.function("fused", params, attrs={"Primitive": True}, private=True):
            with builder.dataflow():
                for name in group:
                    call = self._before.calls[name]
                    arguments = [
                        inside[make_argument_key(e, self._before.names)] for e in call.args[1]
                    ]
                    inside[name] = relax.DataflowVar(name, call.ty)
                    new_call = builder.normalize(self.primitive(call, arguments))
                    builder.emit_normalized(relax.VarBinding(inside[name], new_call))
                outputs = [inside[name] for name in results]
                out = builder.emit_output(outputs[0] if len(outputs) == 1 else tuple(outputs))
            builder.emit_func_output(out)
        return builder.get()["fused"], list(arguments_by_key.values())

    def primitive(self, call: relax.Call, arguments: Sequence[relax.Expr]) -> relax.Call:
        """Rebuild a call of a PrimFunc with other arguments."""
        function = self._module.get_global_var(find_callee(call) or "")
        return relax.Call(call.op, [function, relax.Tuple(arguments)], call.attrs, call.ty_args)


class _Regrouped:
    """Rewrites the graph: calls of new functions replace those that computed their steps."""

    def __init__(
        self, module: tvm.IRModule, before: Unfused, fused_groups: Fused, groups: Groups
    ) -> None:
        self._before = before
        self._steps = fused_groups.steps
        self._values = fused_groups.values
        self._groups = {name: group for group in groups for name in group}
        self._builder = relax.BlockBuilder(module)
        self._functions = Functions(module, before)
        self._variables: dict[str, relax.Var] = {}
        for variable, value in fused_groups.values.items():
            if isinstance(value, str):
                self._variables.setdefault(value, variable)
        for entry, graph in graph_functions(module):
            blocks = list(map(self._block, graph.body.blocks))
            body = self._builder.normalize(relax.SeqExpr(blocks, graph.body.body))
            new_function = relax.Function(
                graph.params, body, graph.ret_ty, graph.is_pure, graph.attrs
            )
            self._builder.update_func(entry, new_function)
        self.module: tvm.IRModule = self._builder.get()

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        """Rewrite a block with the new calls, in topological order."""
        units: list[list[relax.Binding]] = []
        built_groups: dict[tuple[str, ...], None] = {}
        for binding in block.bindings:
            names = self._steps.get(binding.var, ())
            block_groups = dict.fromkeys(
                self._groups[name] for name in names if name in self._groups
            )
            units.extend(
                self._build_group_calls(group)
                for group in block_groups
                if group not in built_groups
            )
            built_groups.update(block_groups)
            value = self._values[binding.var]
            is_grouped = isinstance(value, str) and value in self._groups
            if is_grouped and binding.var.same_as(self._find_variable(str(value))):
                continue  # a new call binds it
            if block_groups:
                assert isinstance(value, tuple)  # noqa: S101 - of the results of a group
                fields = [self._find_variable(str(name)) for name in value]
                units.append([self._make_binding(binding.var, relax.Tuple(fields))])
            else:
                units.append([binding])
        return relax.DataflowBlock(list(_sort_units(units))) if built_groups else block

    def _build_group_calls(self, group: tuple[str, ...]) -> list[relax.Binding]:
        """Build the bindings that compute the results of a group."""
        results = [name for name in group if self._functions.is_read(name, group)]
        if len(group) == 1:
            call = self._before.calls[group[0]]
            arguments = [self._map_to_main(argument) for argument in call.args[1]]
            return [
                self._make_binding(
                    self._find_variable(group[0]), self._functions.primitive(call, arguments)
                )
            ]
        function, inputs = self._functions.function(group, results)
        name = "_".join(["fused", *(find_callee(self._before.calls[step]) or "" for step in group)])
        arguments = [self._map_to_main(argument) for argument in inputs]
        callee = self._builder.add_func(function, name)
        call_of_group = relax.Call(callee, arguments, ret_ty=function.ret_ty)
        if len(results) == 1:
            return [relax.VarBinding(self._find_variable(results[0]), call_of_group)]
        several = relax.DataflowVar(name, function.ret_ty)
        items = (
            self._make_binding(self._find_variable(result), relax.TupleGetItem(several, index))
            for index, result in enumerate(results)
        )
        return [relax.VarBinding(several, call_of_group), *items]

    def _map_to_main(self, value: relax.Expr) -> relax.Expr:
        """Map an expression before fusion to one of the new `main`."""
        if not isinstance(value, relax.Var):
            return value
        return self._find_variable(self._before.names[value])

    def _find_variable(self, name: str) -> relax.Var:
        """Return the variable of a step in the new `main`."""
        if name not in self._variables:
            self._variables[name] = relax.DataflowVar(name, self._before.calls[name].ty)
        return self._variables[name]

    def _make_binding(self, variable: relax.Var, value: relax.Expr) -> relax.Binding:
        """Build a binding, and infer the type of its value."""
        return relax.VarBinding(variable, self._builder.normalize(value))


def _sort_units(units: Sequence[Sequence[relax.Binding]]) -> Iterator[relax.Binding]:
    """Yield the bindings of all units in topological order, stable otherwise.

    The order is found by depth-first search. Raises ValueError if two units read each other.
    """
    unit_of = {binding.var: unit for unit in units for binding in unit}
    places = {variable: place for place, variable in enumerate(unit_of)}
    emitted_variables: set[relax.Var] = set()
    on_stack: set[relax.Var] = set()
    waiting = list(reversed(units))
    while waiting:
        unit = waiting[-1]
        unit_variables = {binding.var for binding in unit}
        read = {v for binding in unit for v in relax.analysis.free_vars(binding.value)}
        before = sorted(
            (read & unit_of.keys()) - emitted_variables - unit_variables, key=places.__getitem__
        )
        if before and unit_variables & on_stack:
            raise ValueError("functions read each other")
        if before:
            on_stack |= unit_variables
            waiting.extend(unit_of[variable] for variable in reversed(before))
            continue
        waiting.pop()
        if not unit_variables & emitted_variables:
            emitted_variables |= unit_variables
            yield from unit
