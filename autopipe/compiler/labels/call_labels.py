"""Transfer labels of kernel calls across fusion, which renames variables.

Fusion calls equal groups by one function, so that names inside it are those of the first group. So
each value gets a value number (as in global value numbering), before fusion and after it:

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
"""Bytes of the largest constant that is hashed; larger ones are keyed by shape and dtype."""

Number = int
"""A value number: equal for values that are computed alike."""
_Known = dict[relax.Var, "Number | tuple[Number, ...]"]


@dataclass(frozen=True, slots=True)
class _Group:
    """A function of `FuseOps`."""

    params: Sequence[relax.Var]
    bound: Sequence[tuple[relax.Var, relax.Expr]]
    """Its bindings, as (variable, value)."""
    result: relax.Expr


class CallLabels:
    """Labels of the calls of a legalized module."""

    def __init__(self, module: tvm.IRModule, labels: Mapping[str, Label]) -> None:
        """Number the values of a legalized module, and attach `labels`, by variable name.

        An op may be legalized to several calls; only the last has its name.
        """
        self._numbers: dict[object, Number] = {}
        self._labels: dict[Number, Label | None] = {}
        self._groups: dict[str, _Group] = {}
        """The parsed functions of `FuseOps`, by name."""
        for variable, function in graph_functions(module):
            numbers, pending = self._number_params(variable, function), list[Number]()
            for binding in list_bindings(function):
                number = numbers[binding.var] = self._number_value(binding.value, numbers)
                if find_callee(binding.value) is not None and isinstance(number, int):
                    pending.append(number)
                if (label := labels.get(binding.var.name)) is None:
                    continue
                for number_of_call in pending:
                    self._labels[number_of_call] = merge_labels(
                        (self._labels.get(number_of_call), label)
                    )
                pending = []

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Label the bindings of kernel calls of a module after `FuseOps`."""
        labels: dict[relax.Var, Label] = {}
        for variable, graph in graph_functions(module):
            known_numbers = self._number_params(variable, graph)
            for binding in list_bindings(graph):
                group = self._find_group(module, binding.value)
                numbers = (
                    [self._number_value(binding.value, known_numbers)]
                    if group is None
                    else self._number_group(group, binding.value, known_numbers)
                )
                known_numbers[binding.var] = numbers[-1]
                if group is not None or find_callee(binding.value) is not None:
                    label = merge_labels(
                        self._labels.get(number) for number in numbers if isinstance(number, int)
                    )
                    if label is not None:
                        labels[binding.var] = label
        return set_labels(module, labels)

    def _find_group(self, module: tvm.IRModule, value: relax.Expr) -> "_Group | None":
        """Return the function of `FuseOps` that a value calls, or None."""
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
            return None
        name = str(value.op.name_hint)
        if (
            name not in self._groups
            and (function := find_fused_function(module, value)) is not None
        ):
            self._groups[name] = _Group(
                list(function.params),
                [(binding.var, binding.value) for binding in list_bindings(function)],
                function.body.body,
            )
        return self._groups.get(name)

    def _number_group(
        self, group: "_Group", call: relax.Expr, numbers_by_variable: _Known
    ) -> list[Number | tuple[Number, ...]]:
        """Return the value numbers of the bindings of a group, its result last."""
        values = [self._number_value(argument, numbers_by_variable) for argument in call.args]
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

    def _number_value(self, value: tvm.ir.Expr, numbers: _Known) -> "Number | tuple[Number, ...]":
        if isinstance(value, relax.Var):
            return numbers[value] if value in numbers else self._assign_number(("free", value.name))
        if isinstance(value, relax.Tuple):
            return tuple(self._number_single(field, numbers) for field in value.fields)
        if isinstance(value, relax.TupleGetItem):
            source = self._number_value(value.tuple_value, numbers)
            if isinstance(source, tuple):
                return source[value.index]
            return self._assign_number(("item", source, value.index))
        return self._assign_number(self._make_key(value, numbers))

    def _number_single(self, value: tvm.ir.Expr, numbers: _Known) -> Number:
        number = self._number_value(value, numbers)
        return self._assign_number(number) if isinstance(number, tuple) else number

    def _make_key(self, value: tvm.ir.Expr, numbers: _Known) -> object:
        if isinstance(value, relax.Call):
            if (name := find_callee(value)) is not None:  # the callee itself is no operand
                arguments = list(value.args)[1:]
            else:
                name = getattr(value.op, "name", None) or str(value.op)
                arguments = list(value.args)
            return name, tuple(self._number_value(argument, numbers) for argument in arguments)
        if isinstance(value, tvm.ir.GenericConst):
            array = value.value.numpy()
            content = sha256(array.tobytes()).hexdigest() if array.nbytes <= _LARGEST else ""
            return "constant", array.shape, str(array.dtype), content
        if isinstance(value, relax.If):
            return "if", self._number_value(value.cond, numbers)
        return type(value).__name__
