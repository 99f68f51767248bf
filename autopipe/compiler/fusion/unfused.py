"""The `main` of a module before fusion: its bindings as steps, each found again by what it says."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.fusion.chains import Step
from autopipe.compiler.graph.calls import bindings, callee
from autopipe.compiler.graph.literals import tensors
from autopipe.compiler.op_info import Parts
from autopipe.tasks.op_info import KINDS
from autopipe.tasks.tensor import Tensor

_SIMPLE: Final = KINDS.index("injective")

Value: TypeAlias = "str | tuple[Value, ...] | relax.Expr"
"""What an expression stands for before fusion: a variable, by name, or several, or a constant."""


@dataclass(frozen=True, slots=True)
class Unfused:
    """The bindings of `main` before fusion; each has a name of its own."""

    steps: Sequence[Step]
    """Those that say something of their own: what repeats another is left out."""
    calls: Mapping[str, relax.Call]
    """The calls of PrimFuncs, by name."""
    names: Mapping[relax.Var, str]
    """The step or the parameter of `main` that a variable stands for."""
    found: Mapping[Hashable, str]
    """The steps, by what `key` gives for them."""
    returned: frozenset[str]
    """What `main` returns."""


def unfused(module: tvm.IRModule, ops: Mapping[str, relax.Expr], known: Parts) -> Unfused:
    """Return the bindings of `main`; `ops` are the names that ops were bound to before."""
    main = module["main"]
    names: dict[relax.Var, str] = {param: param.name for param in main.params}
    found: dict[Hashable, str] = {}
    steps: list[Step] = []
    twice: set[str] = set()
    inside = _dataflow(main)
    for binding in bindings(main):
        name = binding.var.name
        names[binding.var] = found.setdefault(key(binding.value, name, names), name)
        if names[binding.var] == name:
            step = _step(binding, known, inside=name in inside)
            reads = (names.get(each) for each in relax.analysis.free_vars(binding.value))
            steps.append(replace(step, reads=tuple(dict.fromkeys(each for each in reads if each))))
        else:
            twice.add(names[binding.var])
    own = {step.name for step in steps}
    steps = [replace(step, reads=tuple(r for r in step.reads if r in own)) for step in steps]
    repeated = "is computed twice"  # by two functions, which a change of one would not keep apart
    steps = [replace(s, obstacle=s.obstacle or repeated) if s.name in twice else s for s in steps]
    calls = {b.var.name: b.value for b in bindings(main) if callee(b.value) and b.var.name in own}
    returned = (names[variable] for variable in relax.analysis.free_vars(main.body.body))
    return Unfused(_owned(steps, ops), calls, names, found, frozenset(returned))


def key(value: relax.Expr, name: str, names: Mapping[relax.Var, Value]) -> Hashable:
    """Return what tells a binding from others, whatever its variables are called after fusion."""
    if isinstance(value, relax.TupleGetItem):
        return "item", meaning(value.tuple_value, names), int(value.index)
    function = callee(value)
    if function is None:
        return "binding", name
    return "call", function, *(meaning(each, names) for each in value.args[1])


def meaning(value: relax.Expr, names: Mapping[relax.Var, Value]) -> Hashable:
    """Return what tells an argument from others."""
    if isinstance(value, relax.Var):
        bound = names[value]
        return bound if isinstance(bound, str | tuple) else meaning(bound, names)
    return "constant", tvm_ffi.structural_hash(value)


def _dataflow(main: relax.Function) -> frozenset[str]:
    """Return the bindings of the longest dataflow block; nothing is fused elsewhere."""
    blocks = [b.bindings for b in main.body.blocks if isinstance(b, relax.DataflowBlock)]
    return frozenset(binding.var.name for binding in max(blocks, key=len, default=()))


def _step(binding: relax.Binding, known: Parts, *, inside: bool) -> Step:
    name, value = binding.var.name, binding.value
    if callee(value) is None:
        return Step(name, "", name, (), simple=True, obstacle="can not be moved")
    part = known.of(value)
    obstacle = None if inside else "is outside of the dataflow"
    if isinstance(value.ty, relax.TupleType):
        obstacle = "has several results"
    if any(min(each.shape, default=0) < 0 for each in (*tensors(value.ty), *_read(value))):
        obstacle = "has a symbolic dimension"
    return Step(name, part.op.name, name, (), part.pattern <= _SIMPLE, obstacle)


def _read(call: relax.Call) -> Sequence[Tensor]:
    return [found for argument in call.args[1] for found in tensors(argument.ty)]


def _owned(steps: Sequence[Step], ops: Mapping[str, relax.Expr]) -> list[Step]:
    """Give the steps before one that an op was bound to, which belong to it, to that op."""
    found: list[Step] = []
    pending: list[Step] = []
    for step in steps:
        pending.append(step)
        if step.name in ops or not step.op:
            same = [each for each in pending if each.op == step.op and each.op]
            found.extend(replace(e, owner=step.name) if e in same else e for e in pending)
            pending = []
    return [*found, *pending]
