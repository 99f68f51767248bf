"""Reads the groups that `FuseOps` chose, and makes the functions of changed groups.

Example: before fusion `main` is

    lv = conv2d(x, w); lv1 = add(lv, b); gv = relu(lv1)

`FuseOps` makes of it, and `read_groups` finds the group ("lv", "lv1", "gv"):

    gv = fused_conv2d_add_relu(x, w, b)

With the groups ("lv", "lv1") and ("gv",), `replace_groups` makes

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
    """What `FuseOps` made of the graph, in terms of the steps before fusion."""

    values: Mapping[relax.Var, Value]
    """What the new variables stand for."""
    steps: Mapping[relax.Var, tuple[str, ...]]
    """The steps that a binding computes, by the variable that it binds."""

    @property
    def groups(self) -> Groups:
        """The steps of each function."""
        return list(self.steps.values())


def read_groups(module: tvm.IRModule, before: Unfused) -> Fused:
    """Return which steps each binding after `FuseOps` computes."""
    functions = graph_functions(module)
    values: dict[relax.Var, Value] = {p: p.name for _, graph in functions for p in graph.params}
    steps: dict[relax.Var, tuple[str, ...]] = {}
    for function, graph in functions:
        read_value = partial(_resolve_binding, str(function.name_hint), before)
        for binding in list_bindings(graph):
            variable, value = binding.var, binding.value
            called = find_fused_function(module, value)
            if called is None:
                values[variable] = read_value(value, variable.name, values)
                if find_callee(value) is not None:
                    steps[variable] = (str(values[variable]),)
                continue
            given = zip(called.params, value.args, strict=True)
            inner = {param: _resolve_argument(argument, values) for param, argument in given}
            for step in list_bindings(called):
                inner[step.var] = read_value(step.value, step.var.name, inner)
            calls = (
                inner[step.var]
                for step in list_bindings(called)
                if find_callee(step.value) is not None
            )
            steps[variable] = tuple(str(name) for name in calls)
            values[variable] = _resolve_argument(called.body.body, inner)
    return Fused(values, steps)


def replace_groups(
    module: tvm.IRModule, before: Unfused, fused: Fused, groups: Groups
) -> tvm.IRModule:
    """Return what `FuseOps` made, with the functions of `groups` in place of its own.

    Both divide the same steps. Groups that `FuseOps` chose itself keep their functions.
    """
    unchanged = set(fused.groups)
    changed = [group for group in groups if group not in unchanged and group[0] in before.calls]
    return _Regrouped(module, before, fused, changed).module if changed else module


def _resolve_binding(
    place: str, before: Unfused, value: relax.Expr, name: str, values: Mapping[relax.Var, Value]
) -> Value:
    """Return what a binding stands for that does not call a function of `FuseOps`."""
    if isinstance(value, relax.TupleGetItem) and isinstance(values[value.tuple_value], tuple):
        return values[value.tuple_value][value.index]
    if isinstance(value, relax.Tuple | relax.Var):
        return _resolve_argument(value, values)
    return before.found.get((place, make_binding_key(value, name, values)), name)


def _resolve_argument(value: relax.Expr, values: Mapping[relax.Var, Value]) -> Value:
    """Return what an argument stands for before fusion."""
    if isinstance(value, relax.Var):
        return values[value]
    if isinstance(value, relax.Tuple):
        return tuple(_resolve_argument(field, values) for field in value.fields)
    return value


class Functions:
    """Makes functions of groups of steps, as `FuseOps` would."""

    def __init__(self, module: tvm.IRModule, before: Unfused) -> None:
        self._before = before
        self._module = module
        self.reads = {step.name: step.reads for step in before.steps}
        """What each step reads, by name."""
        self.readers: dict[str, list[str]] = {step.name: [] for step in before.steps}
        """What reads each step, by name and in order."""
        for step in before.steps:
            for read in step.reads:
                self.readers[read].append(step.name)

    def alone(self, group: Sequence[str]) -> tvm.IRModule:
        """Return a module whose `main` only calls the function of a group, which is `fused`."""
        function, _ = self.function(group, [name for name in group if self.is_read(name, group)])
        names = {find_callee(self._before.calls[name]) or "" for name in group}
        called = [self._module.get_global_var(name) for name in sorted(names)]
        builder = relax.BlockBuilder(tvm.IRModule({var: self._module[var] for var in called}))
        fused = builder.add_func(function, "fused")
        params = [relax.Var(param.name, param.ty) for param in function.params]
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(relax.Call(fused, params)))
        return builder.get()

    def is_read(self, name: str, group: Sequence[str]) -> bool:
        """Tell whether a step is read outside of its group."""
        return name in self._before.returned or any(
            reader not in group for reader in self.readers[name]
        )

    def function(
        self, group: Sequence[str], results: Sequence[str]
    ) -> tuple[relax.Function, list[relax.Expr]]:
        """Return the function that computes `results` of a group, and the arguments of its call."""
        inside: dict[Hashable, relax.Var] = {}
        given: dict[Hashable, relax.Expr] = {}
        for name in group:
            for argument in self._before.calls[name].args[1]:
                meant = make_argument_key(argument, self._before.names)
                if meant not in group and meant not in given:
                    named = meant if isinstance(meant, str) else f"param_{len(given)}"
                    inside[meant], given[meant] = relax.Var(named, argument.ty), argument
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
                    made = builder.normalize(self.primitive(call, arguments))
                    builder.emit_normalized(relax.VarBinding(inside[name], made))
                outputs = [inside[name] for name in results]
                out = builder.emit_output(outputs[0] if len(outputs) == 1 else tuple(outputs))
            builder.emit_func_output(out)
        return builder.get()["fused"], list(given.values())

    def primitive(self, call: relax.Call, arguments: Sequence[relax.Expr]) -> relax.Call:
        """Return the same call of a PrimFunc with other arguments."""
        function = self._module.get_global_var(find_callee(call) or "")
        return relax.Call(call.op, [function, relax.Tuple(arguments)], call.attrs, call.ty_args)


class _Regrouped:
    """Rewrites the graph: calls of new functions replace those that computed their steps."""

    def __init__(self, module: tvm.IRModule, before: Unfused, fused: Fused, groups: Groups) -> None:
        self._before = before
        self._steps = fused.steps
        self._values = fused.values
        self._groups = {name: group for group in groups for name in group}
        self._builder = relax.BlockBuilder(module)
        self._functions = Functions(module, before)
        self._variables: dict[str, relax.Var] = {}
        for variable, value in fused.values.items():
            if isinstance(value, str):
                self._variables.setdefault(value, variable)
        for entry, graph in graph_functions(module):
            blocks = list(map(self._block, graph.body.blocks))
            body = self._builder.normalize(relax.SeqExpr(blocks, graph.body.body))
            whole = relax.Function(graph.params, body, graph.ret_ty, graph.is_pure, graph.attrs)
            self._builder.update_func(entry, whole)
        self.module: tvm.IRModule = self._builder.get()

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        """Return a block with the new calls, each binding after what it reads."""
        units: list[list[relax.Binding]] = []
        made: dict[tuple[str, ...], None] = {}
        for binding in block.bindings:
            names = self._steps.get(binding.var, ())
            changed = dict.fromkeys(self._groups[name] for name in names if name in self._groups)
            units.extend(self._build_group_calls(group) for group in changed if group not in made)
            made.update(changed)
            value = self._values[binding.var]
            named = isinstance(value, str) and value in self._groups
            if named and binding.var.same_as(self._find_variable(str(value))):
                continue  # a new call binds it
            if changed:
                assert isinstance(value, tuple)  # noqa: S101 - of the results of a group
                fields = [self._find_variable(str(name)) for name in value]
                units.append([self._make_binding(binding.var, relax.Tuple(fields))])
            else:
                units.append([binding])
        return relax.DataflowBlock(list(_sort_units(units))) if made else block

    def _build_group_calls(self, group: tuple[str, ...]) -> list[relax.Binding]:
        """Return the bindings that compute what others read of a group."""
        results = [name for name in group if self._functions.is_read(name, group)]
        if len(group) == 1:
            call = self._before.calls[group[0]]
            arguments = [self._map_to_main(argument) for argument in call.args[1]]
            return [
                self._make_binding(
                    self._find_variable(group[0]), self._functions.primitive(call, arguments)
                )
            ]
        function, given = self._functions.function(group, results)
        name = "_".join(["fused", *(find_callee(self._before.calls[step]) or "" for step in group)])
        arguments = [self._map_to_main(argument) for argument in given]
        called = self._builder.add_func(function, name)
        whole = relax.Call(called, arguments, ret_ty=function.ret_ty)
        if len(results) == 1:
            return [relax.VarBinding(self._find_variable(results[0]), whole)]
        several = relax.DataflowVar(name, function.ret_ty)
        items = (
            self._make_binding(self._find_variable(result), relax.TupleGetItem(several, index))
            for index, result in enumerate(results)
        )
        return [relax.VarBinding(several, whole), *items]

    def _map_to_main(self, value: relax.Expr) -> relax.Expr:
        """Return the expression of the new `main` for an expression before fusion."""
        if not isinstance(value, relax.Var):
            return value
        return self._find_variable(self._before.names[value])

    def _find_variable(self, name: str) -> relax.Var:
        """Return the variable of a step in the new `main`."""
        if name not in self._variables:
            self._variables[name] = relax.DataflowVar(name, self._before.calls[name].ty)
        return self._variables[name]

    def _make_binding(self, variable: relax.Var, value: relax.Expr) -> relax.Binding:
        """Return a binding whose value has its type inferred."""
        return relax.VarBinding(variable, self._builder.normalize(value))


def _sort_units(units: Sequence[Sequence[relax.Binding]]) -> Iterator[relax.Binding]:
    """Yield the bindings of all units, each unit after those it reads, otherwise in their order.

    The order is found by depth-first search. Raises ValueError if two units read each other.
    """
    unit_of = {binding.var: unit for unit in units for binding in unit}
    places = {variable: place for place, variable in enumerate(unit_of)}
    done: set[relax.Var] = set()
    opened: set[relax.Var] = set()
    waiting = list(reversed(units))
    while waiting:
        unit = waiting[-1]
        own = {binding.var for binding in unit}
        read = {v for binding in unit for v in relax.analysis.free_vars(binding.value)}
        before = sorted((read & unit_of.keys()) - done - own, key=places.__getitem__)
        if before and own & opened:
            raise ValueError("functions read each other")
        if before:
            opened |= own
            waiting.extend(unit_of[variable] for variable in reversed(before))
            continue
        waiting.pop()
        if not own & done:
            done |= own
            yield from unit
