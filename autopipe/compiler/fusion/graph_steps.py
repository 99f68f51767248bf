"""Describe the graph before fusion as steps, one per binding, with keys that survive fusion.

`FuseOps` renames variables, so a call is recognized by its callee and arguments:
`make_binding_key` returns ("call", "add", "lv", "b") for `lv1 = add(lv, b)`. Bindings with one key
compute the same, and are one step.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.fusion.chains import FusionStep
from autopipe.compiler.graph.calls import (
    find_callee,
    graph_functions,
    is_kernel_call,
    list_bindings,
)
from autopipe.compiler.graph.literals import list_tensors
from autopipe.compiler.labels.op_info import CallInfos
from autopipe.tasks.op_info import KINDS
from autopipe.tasks.tensor import Tensor

_SIMPLE: Final = KINDS.index("injective")

Value: TypeAlias = "str | tuple[Value, ...] | relax.Expr"
"""The value of an expression before fusion: a variable (its name), a tuple, or a constant."""


@dataclass(frozen=True, slots=True)
class Unfused:
    """The bindings of the graph before fusion, with unique names."""

    steps: Sequence[FusionStep]
    """The bindings as steps, without duplicates."""
    calls: Mapping[str, relax.Call]
    """The calls of PrimFuncs, by name."""
    names: Mapping[relax.Var, str]
    """Name of the step or parameter of a variable."""
    found: Mapping[Hashable, str]
    """Names of the steps, by function and `make_binding_key`."""
    returned: frozenset[str]
    """Names of the steps and parameters that a function of the graph returns."""


def describe_steps(
    module: tvm.IRModule, ops: Mapping[str, relax.Expr], parts: CallInfos
) -> Unfused:
    """Describe a legalized graph as steps.

    Args:
        module: The legalized module, before `FuseOps`.
        ops: The value of each name in the graph before legalization.
        parts: The op of each call of a PrimFunc.
    """
    functions = graph_functions(module)
    names: dict[relax.Var, str] = {p: p.name for _, function in functions for p in function.params}
    names_by_key: dict[Hashable, str] = {}
    steps: list[FusionStep] = []
    twice: set[str] = set()
    for variable, function in functions:
        inside = _list_dataflow_names(function)
        for binding in list_bindings(function):
            name = binding.var.name
            place = variable.name_hint, make_binding_key(binding.value, name, names)
            names[binding.var] = names_by_key.setdefault(place, name)
            if names[binding.var] == name:
                step = _describe_step(binding, parts, inside=name in inside)
                reads = (names.get(var) for var in relax.analysis.free_vars(binding.value))
                read = tuple(dict.fromkeys(filter(None, reads)))
                steps.append(replace(step, reads=read))
            else:
                twice.add(names[binding.var])
    step_names = {step.name for step in steps}
    steps = [replace(step, reads=tuple(r for r in step.reads if r in step_names)) for step in steps]
    obstacle = "is computed twice"  # by two functions, which a change of one would not keep apart
    steps = [replace(s, obstacle=s.obstacle or obstacle) if s.name in twice else s for s in steps]
    bound = [binding for _, function in functions for binding in list_bindings(function)]
    calls = {
        b.var.name: b.value for b in bound if is_kernel_call(b.value) and b.var.name in step_names
    }
    results = [v for _, function in functions for v in relax.analysis.free_vars(function.body.body)]
    result_names = (names[variable] for variable in results)
    return Unfused(_assign_owners(steps, ops), calls, names, names_by_key, frozenset(result_names))


def make_binding_key(value: relax.Expr, name: str, names: Mapping[relax.Var, Value]) -> Hashable:
    """Build a key of a binding that does not depend on names of variables after fusion.

    `name` identifies a binding that neither calls a PrimFunc nor takes an item of a tuple.
    """
    if isinstance(value, relax.TupleGetItem):
        return "item", make_argument_key(value.tuple_value, names), int(value.index)
    function = find_callee(value)
    if function is None:
        return "binding", name
    return "call", function, *(make_argument_key(argument, names) for argument in value.args[1])


def make_argument_key(value: relax.Expr, names: Mapping[relax.Var, Value]) -> Hashable:
    """Build a key of an argument: the name of a step, or the hash of a constant."""
    if isinstance(value, relax.Var):
        size = "size", value.name  # bound by the type of a parameter, not by a binding
        bound = names.get(value, size)
        return bound if isinstance(bound, str | tuple) else make_argument_key(bound, names)
    return "constant", tvm_ffi.structural_hash(value)


def _list_dataflow_names(function: relax.Function) -> frozenset[str]:
    """List the names bound in the longest dataflow block, the only one that `FuseOps` fuses."""
    blocks = [b.bindings for b in function.body.blocks if isinstance(b, relax.DataflowBlock)]
    return frozenset(binding.var.name for binding in max(blocks, key=len, default=()))


def _describe_step(binding: relax.Binding, parts: CallInfos, *, inside: bool) -> FusionStep:
    """Build the step of a binding without its reads; `inside` is whether it is in the dataflow."""
    name, value = binding.var.name, binding.value
    if not is_kernel_call(value):
        return FusionStep(name, "", name, (), simple=True, obstacle="cannot be moved")
    part = parts.of(value)
    obstacle = None if inside else "is outside of the dataflow"
    if isinstance(value.ty, relax.TupleType):
        obstacle = "has several results"
    shapes = [tensor.shape for tensor in (*list_tensors(value.ty), *_list_read_tensors(value))]
    if any(min(shape, default=0) < 0 for shape in shapes):
        obstacle = "has a symbolic dimension"
    return FusionStep(name, part.op.name, name, (), part.pattern <= _SIMPLE, obstacle)


def _list_read_tensors(call: relax.Call) -> Sequence[Tensor]:
    """List the tensors that a call reads."""
    return [tensor for argument in call.args[1] for tensor in list_tensors(argument.ty)]


def _assign_owners(steps: Sequence[FusionStep], ops: Mapping[str, relax.Expr]) -> list[FusionStep]:
    """Set the owner of each step: the last step of the same op."""
    owned_steps: list[FusionStep] = []
    pending: list[FusionStep] = []
    for step in steps:
        pending.append(step)
        if step.name in ops or not step.op:
            same_op = [earlier for earlier in pending if earlier.op == step.op and earlier.op]
            owned_steps.extend(replace(s, owner=step.name) if s in same_op else s for s in pending)
            pending = []
    return [*owned_steps, *pending]
