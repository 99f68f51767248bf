"""Labels of kernel calls, found again behind fusion, which names variables anew.

Fusion calls equal groups by one function, so that names inside it are those of the first group. So
each value is numbered by how it is computed, before fusion and behind it:

    op4 = conv2d(x, w); op5@7 = relu(op4)    ->    lv1 = fused_conv2d_relu(x, w)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import (
    find_callee,
    find_fused_function,
    graph_functions,
    list_bindings,
)
from autopipe.compiler.labels.node_labels import Label, merge_labels, set_labels

_LARGEST: Final = 1 << 12
"""Bytes of a constant that are looked at; of a larger one, shape and dtype tell what it is."""

Number = int
"""Of a value, by how it is computed."""
_Known = dict[relax.Var, "Number | tuple[Number, ...]"]


@dataclass(frozen=True, slots=True)
class _Group:
    """A function of `FuseOps`."""

    params: Sequence[relax.Var]
    bound: Sequence[tuple[relax.Var, relax.Expr]]
    """Its variables, and what they are bound to."""
    result: relax.Expr


class CallLabels:
    """Labels of the calls of a legalized module."""

    def __init__(self, legalized: tvm.IRModule, labels: Mapping[str, Label]) -> None:
        """Take the labels of variables by their names.

        Several calls may compute what one variable of an operator had; only the last has its name.
        """
        self._numbers: dict[object, Number] = {}
        self._labels: dict[Number, Label | None] = {}
        self._groups: dict[str, _Group] = {}
        """The functions of `FuseOps` that were looked at, by name."""
        for variable, function in graph_functions(legalized):
            known, pending = self._number_params(variable, function), list[Number]()
            for binding in list_bindings(function):
                number = known[binding.var] = self._number_value(binding.value, known)
                if find_callee(binding.value) is not None and isinstance(number, int):
                    pending.append(number)
                if (label := labels.get(binding.var.name)) is None:
                    continue
                for one in pending:
                    self._labels[one] = merge_labels((self._labels.get(one), label))
                pending = []

    def apply(self, fused: tvm.IRModule) -> tvm.IRModule:
        """Return the module behind `FuseOps`, with labels on what is bound to calls of kernels."""
        found: dict[relax.Var, Label] = {}
        for variable, graph in graph_functions(fused):
            known = self._number_params(variable, graph)
            for binding in list_bindings(graph):
                group = self._find_group(fused, binding.value)
                called = (
                    [self._number_value(binding.value, known)]
                    if group is None
                    else self._number_group(group, binding.value, known)
                )
                known[binding.var] = called[-1]
                if group is not None or find_callee(binding.value) is not None:
                    label = merge_labels(
                        self._labels.get(one) for one in called if isinstance(one, int)
                    )
                    if label is not None:
                        found[binding.var] = label
        return set_labels(fused, found)

    def _find_group(self, fused: tvm.IRModule, value: relax.Expr) -> "_Group | None":
        """Return the function of `FuseOps` that a value calls, None if it calls none."""
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
            return None
        name = str(value.op.name_hint)
        if name not in self._groups and (function := find_fused_function(fused, value)) is not None:
            self._groups[name] = _Group(
                list(function.params),
                [(binding.var, binding.value) for binding in list_bindings(function)],
                function.body.body,
            )
        return self._groups.get(name)

    def _number_group(
        self, group: "_Group", call: relax.Expr, known: _Known
    ) -> list[Number | tuple[Number, ...]]:
        """Return the numbers of what a group computes, its result last."""
        values = [self._number_value(argument, known) for argument in call.args]
        inner: _Known = dict(zip(group.params, values, strict=True))
        numbers = []
        for variable, value in group.bound:
            number = inner[variable] = self._number_value(value, inner)
            numbers.append(number)
        return [*numbers, self._number_value(group.result, inner)]

    def _number_params(self, variable: tvm.ir.GlobalVar, function: relax.Function) -> _Known:
        name = str(variable.name_hint)
        return {param: self._assign_number((name, at)) for at, param in enumerate(function.params)}

    def _assign_number(self, key: object) -> Number:
        return self._numbers.setdefault(key, len(self._numbers))

    def _number_value(self, value: tvm.ir.Expr, known: _Known) -> "Number | tuple[Number, ...]":
        if isinstance(value, relax.Var):
            return known[value] if value in known else self._assign_number(("free", value.name))
        if isinstance(value, relax.Tuple):
            return tuple(self._number_single(field, known) for field in value.fields)
        if isinstance(value, relax.TupleGetItem):
            source = self._number_value(value.tuple_value, known)
            if isinstance(source, tuple):
                return source[value.index]
            return self._assign_number(("item", source, value.index))
        return self._assign_number(self._make_key(value, known))

    def _number_single(self, value: tvm.ir.Expr, known: _Known) -> Number:
        number = self._number_value(value, known)
        return self._assign_number(number) if isinstance(number, tuple) else number

    def _make_key(self, value: tvm.ir.Expr, known: _Known) -> object:
        if isinstance(value, relax.Call):
            name = find_callee(value) or getattr(value.op, "name", None) or str(value.op)
            return name, tuple(self._number_value(argument, known) for argument in value.args)
        if isinstance(value, tvm.ir.GenericConst):
            array = value.value.numpy()
            content = sha256(array.tobytes()).hexdigest() if array.nbytes <= _LARGEST else ""
            return "constant", array.shape, str(array.dtype), content
        if isinstance(value, relax.If):
            return "if", self._number_value(value.cond, known)
        return type(value).__name__
