"""Find the role of each weight of a module from its loops, since it may be one PrimFunc."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import relax, tirx
from tvm.ir import Expr, TensorLoad
from tvm.relax import transform
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.moments import NORMAL, Kind, Moments, Role, round_moments
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.passes.legalize import legalize_ops

_OF_WEIGHTS: Final[Mapping[Kind, Moments]] = {"shift": Moments(0, 0.01), "scale": Moments(1, 1.04)}
_ROOTS: Final = frozenset({"sqrt", "rsqrt", "log"})
_BRANCH: Final = "if_then_else"
_RULES: Final[Mapping[Any, Callable[[list[Moments]], Moments]]] = {
    tirx.Add: rules.total, tirx.Sub: rules.difference, tirx.Mul: rules.product,
    tirx.Div: rules.quotient, tirx.Max: rules.rectified, tirx.Min: rules.rectified,
}  # fmt: skip


def find_roles(module: tvm.IRModule, weights: Sequence[str]) -> dict[str, Role]:
    """Find the roles of parameters of `main`, by name."""
    with tvm.target.Target({"kind": "llvm"}), tvm.transform.PassContext(opt_level=3):
        module = legalize_ops(transform.DecomposeOpsForInference()(module))
    roles = _Roles()
    for param in module["main"].params:
        roles.origin.update({param: param.name} if param.name in weights else {})
    for binding in list_bindings(module["main"]):
        name = find_callee(binding.value)
        if name is None:
            roles.rename(binding.var, binding.value)
        else:
            roles.call(module[name], binding)
    return roles.roles


class _Roles:
    """The moments of the values so far, by the variable or buffer that holds them."""

    def __init__(self) -> None:
        self.roles: dict[str, Role] = {}
        self.origin: dict[Any, str] = {}  # weights and their aliases
        self.moments: dict[Any, Moments] = {}

    def rename(self, new: relax.Var, value: relax.Expr) -> None:
        """Copy the moments of a value, or of a field of it, to another value."""
        old = value.tuple_value if isinstance(value, relax.TupleGetItem) else value
        if isinstance(old, relax.Var):
            self._copy_facts(old, new)

    def call(self, function: tirx.PrimFunc, binding: relax.Binding) -> None:
        """Follow the arguments of a PrimFunc to its result."""
        arguments = list(binding.value.args[1].fields)
        for argument, param in zip(arguments, function.params, strict=False):
            self._drop_facts(param)
            if isinstance(argument, relax.Var):
                self._copy_facts(argument, param)
        for block in find_nodes(function.body, SBlock):
            if isinstance(block.body, tirx.BufferStore):
                self._block(block, block.body)
        self._copy_facts(function.params[-1], binding.var)

    def _copy_facts(self, old: object, new: object) -> None:
        if old in self.origin:
            self.origin[new] = self.origin[old]
        if old in self.moments:
            self.moments[new] = self.moments[old]

    def _drop_facts(self, key: object) -> None:
        self.origin.pop(key, None)
        self.moments.pop(key, None)

    def _block(self, block: SBlock, store: tirx.BufferStore) -> None:
        loads = list_loads(store.value)
        sources = [load.source for load in loads if not load.source.same_as(store.buffer)]
        weights = [source for source in sources if source in self.origin]
        other_sources = [source for source in sources if source not in self.origin]
        terms = math.prod(_read_extent(a) for a in block.iter_vars if a.iter_type != a.DataPar)
        if weights and not other_sources and len({self.origin[weight] for weight in weights}) == 1:
            self.origin[store.buffer] = self.origin[weights[0]]
            if _ROOTS.intersection(map(_read_op_name, find_nodes(store.value, tvm.ir.Call))):
                self.roles.setdefault(self.origin[weights[0]], Role("variance", NORMAL))
            return
        kernel = any(_is_factor(store.value, weight) for weight in weights) and terms > 1
        data = self.moments.get(other_sources[0], NORMAL) if other_sources else NORMAL
        for weight in weights:
            kind: Kind = "kernel" if kernel else _classify_weight(store.value, weight)
            self.roles.setdefault(self.origin[weight], Role(kind, data, terms))
        self.moments[store.buffer] = NORMAL if kernel else self._estimate_result(store, terms)

    def _estimate_result(self, store: tirx.BufferStore, terms: int) -> Moments:
        """Return the moments of the values that a block writes."""
        value = store.value
        if terms == 1:
            return round_moments(*self._estimate_moments(value))
        inner = [side for side in _list_operands(value) if not _has_load_of(side, store.buffer)]
        moments = self._estimate_moments(inner[0]) if inner else NORMAL
        if isinstance(value, tirx.Add):
            return round_moments(moments.mean * terms, moments.square * terms)
        return round_moments(*rules.largest([moments]))

    def _estimate_moments(self, value: Expr) -> Moments:
        """Return the moments of an expression."""
        if isinstance(value, TensorLoad):
            role = self.roles.get(self.origin.get(value.source, ""))
            value_moments = self.moments.get(value.source, NORMAL)
            return _OF_WEIGHTS.get(role.kind, NORMAL) if role else value_moments
        if isinstance(value, tirx.FloatImm | tirx.IntImm):
            return Moments(float(value.value), float(value.value) ** 2)
        if isinstance(value, tirx.Cast):
            return self._estimate_moments(value.value)
        if isinstance(value, tvm.ir.Call):
            return (
                self._estimate_moments(value.args[1]) if _read_op_name(value) == _BRANCH else NORMAL
            )
        rule = _RULES.get(type(value))
        return (
            rule([self._estimate_moments(side) for side in _list_operands(value)])
            if rule
            else NORMAL
        )


def _classify_weight(value: Expr, weight: Expr) -> Kind:
    """Classify a weight of an elementwise expression: table, scale or shift."""
    if any(load.source.same_as(weight) and list_loads(load.indices) for load in list_loads(value)):
        return "table"
    return "scale" if _is_factor(value, weight) else "shift"


def _is_factor(value: Expr, weight: Expr) -> bool:
    """Whether a weight is one side of a product or quotient in an expression."""
    products = find_nodes(value, tirx.Mul, tirx.Div)
    return any(_has_load_of(side, weight) for inner in products for side in (inner.a, inner.b))


def _has_load_of(value: Expr, buffer: Expr) -> bool:
    return any(load.source.same_as(buffer) for load in list_loads(value))


def _read_op_name(call: tvm.ir.Call) -> str:
    """Return the name of an operator after its last dot."""
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def _list_operands(value: Expr) -> list[Expr]:
    return [value.a, value.b] if hasattr(value, "a") and hasattr(value, "b") else []


def _read_extent(axis: tirx.IterVar) -> int:
    extent = axis.dom.extent
    return int(extent) if isinstance(extent, tirx.IntImm) else 1
