"""Op information on PrimFuncs: read from Relax ops, and kept through lowering and fusion.

It is read after layout conversion and directly before legalization. So its shapes, layouts and
attributes are the ones that the loops are made from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import (
    bindings,
    callee,
    fused_function,
    graph_functions,
    is_kernel_call,
)
from autopipe.compiler.graph.legalized_op import legalized_op
from autopipe.compiler.graph.literals import literal, tensors
from autopipe.compiler.graph.rewrite import rewrite
from autopipe.compiler.labels.node_labels import Label, read_label, strip_label
from autopipe.tasks.op_info import (
    ATTRIBUTE,
    KINDS,
    Argument,
    Fields,
    Op,
    OpInfo,
    Parameter,
)  # fmt: skip

_PATTERN = "op_pattern"
_OPAQUE = KINDS.index("opaque")


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The op that one call of a PrimFunc computes, before fusion."""

    op: Op
    """Its parameters are the arguments of the call."""
    pattern: int
    """An index into `KINDS`."""


Site = tuple[str, ...]
"""A call by the names of its function and of the variables it is given."""


@dataclass(frozen=True, slots=True)
class CallInfos:
    """The ops that the calls of a module compute.

    Fusion renames what its functions return, but not what is read inside them. Folding replaces
    names by constants. Neither changes which PrimFunc is called.
    """

    by_site: Mapping[Site, CallInfo]
    by_function: Mapping[str, CallInfo]
    """By the PrimFunc that is called. Ops that became the same code are told apart by site."""

    def of(self, call: relax.Call) -> CallInfo:
        """Return the op that a call computes, inside or outside of a function of `FuseOps`."""
        return self.by_site.get(_site(call)) or self.by_function[callee(call) or ""]


@mutator
class _NameBindings(PyExprMutator):
    """Give each variable of the graph a unique name, by which its op is found again later."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.ops: dict[str, relax.Expr] = {}
        self.labels: dict[str, Label] = {}
        self._taken: set[str] = set()

    def visit_var_def_(self, var: relax.Var) -> relax.Var:
        name = self._free(strip_label(var.name))
        self._taken.add(name)
        renamed = var if name == var.name else relax.Var(name, var.ty)
        self.set_var_remap(var, renamed)
        return renamed

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        name = self._free(f"op{len(self.ops)}")
        self.ops[name] = value
        if (label := read_label(binding.var.name)) is not None:
            self.labels[name] = label
        kind = relax.DataflowVar if isinstance(binding.var, relax.DataflowVar) else relax.Var
        renamed = kind(name, binding.var.ty)
        self.builder_.emit_normalized(relax.VarBinding(renamed, value))
        self.set_var_remap(binding.var, renamed)

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        return name


def name_ops(
    module: tvm.IRModule,
) -> tuple[tvm.IRModule, Mapping[str, relax.Expr], Mapping[str, Label]]:
    """Return the module with unique names, the op of each name, and the label that was in it."""
    naming = _NameBindings(module)
    return rewrite(naming, module), naming.ops, naming.labels


def parts(legalized: tvm.IRModule, ops: Mapping[str, relax.Expr]) -> CallInfos:
    """Return the op that each call of a PrimFunc in the graph computes.

    An op may be legalized to several bindings. Only the last has a name; those before belong to it.
    """
    sites: dict[Site, CallInfo] = {}
    functions: dict[str, CallInfo] = {}
    for _, function in graph_functions(legalized):
        pending: list[relax.Call] = []
        for binding in bindings(function):
            if is_kernel_call(binding.value):
                pending.append(binding.value)
            if binding.var.name not in ops:
                continue
            for call in pending:
                op = legalized_op(ops[binding.var.name], call, ops, whole=len(pending) == 1)
                sites[_site(call)] = part = CallInfo(op, _pattern(legalized, call))
                functions.setdefault(callee(call) or "", part)
            pending = []
    return CallInfos(sites, functions)


def describe(fused: tvm.IRModule, known: CallInfos) -> dict[str, OpInfo]:
    """Return the op information of each function that the graph calls after `FuseOps`."""
    found: dict[str, OpInfo] = {}
    calls = (binding.value for _, graph in graph_functions(fused) for binding in bindings(graph))
    for value in calls:
        if is_kernel_call(value):
            part = known.of(value)
            kind = KINDS[part.pattern]
            info = OpInfo(kind=kind, ops=(part.op,), results=part.op.results(0))
            found.setdefault(callee(value) or "", info)
        elif (function := fused_function(fused, value)) and value.op.name_hint not in found:
            found[value.op.name_hint] = _DataFlow(function, known).info()
    return found


def carry(module: tvm.IRModule, infos: Mapping[str, OpInfo]) -> tvm.IRModule:
    """Return the module with the op information of its PrimFuncs as an attribute of each."""
    for name, info in infos.items():
        variable = module.get_global_var(name)
        text = info.model_dump_json()
        module.update_func(variable, module[variable].with_attr(ATTRIBUTE, text))
    return module


def carried(function: tvm.tirx.PrimFunc) -> OpInfo:
    """Return the op information of a PrimFunc. It is empty if nothing is known."""
    attrs = function.attrs or {}
    if ATTRIBUTE in attrs:
        return OpInfo.model_validate_json(str(attrs[ATTRIBUTE]))
    return OpInfo(kind=KINDS[int(attrs.get(_PATTERN, _OPAQUE))])


def described(module: tvm.IRModule, info: OpInfo) -> tvm.IRModule:
    """Return a workload module whose `main` carries op information.

    The information is not part of the identity of the workload. If nothing is known, the module is
    returned unchanged.
    """
    if not info.ops:
        return module
    function = module["main"].with_attr(ATTRIBUTE, info.model_dump_json())
    return tvm.IRModule({"main": function})


class _DataFlow:
    """How the ops of a fused function feed each other."""

    def __init__(self, function: relax.Function, known: CallInfos) -> None:
        self._function = function
        self._known = known
        self._values: dict[str, tuple[Argument, ...]] = {}
        self._ops: list[Op] = []
        self._patterns: list[int] = []

    def info(self) -> OpInfo:
        count = 0
        for param in self._function.params:
            width = len(tensors(param.ty))
            self._values[param.name] = tuple(Parameter(parameter=count + i) for i in range(width))
            count += width
        for binding in bindings(self._function):
            self._values[binding.var.name] = tuple(self._computed(binding))
        kind = KINDS[max(self._patterns, default=_OPAQUE)]
        results = tuple(self._resolve(self._function.body.body))
        return OpInfo(kind=kind, ops=tuple(self._ops), results=results)

    def _computed(self, binding: relax.Binding) -> Iterator[Argument]:
        """Yield an argument for each tensor of a binding."""
        value = binding.value
        if not is_kernel_call(value):
            yield from self._resolve(value)
            return
        part = self._known.of(value)
        given = [found for arg in value.args[1] for found in self._resolve(arg)]
        filled = tuple(_filled(argument, given) for argument in part.op.arguments)
        yield from part.op.results(len(self._ops))
        self._ops.append(part.op.model_copy(update={"arguments": filled}))
        self._patterns.append(part.pattern)

    def _resolve(self, value: relax.Expr) -> Sequence[Argument]:
        if isinstance(value, relax.Tuple):
            return [found for field in value.fields for found in self._resolve(field)]
        if isinstance(value, relax.TupleGetItem):
            return [self._resolve(value.tuple_value)[value.index]]
        if isinstance(value, relax.Var) and not isinstance(value.ty, tvm.ir.PrimType):
            return self._values[value.name]
        return [literal(value)]


def _filled(argument: Argument, given: Sequence[Argument]) -> Argument:
    """Replace the parameters of a function by the arguments of a call."""
    if isinstance(argument, Fields):
        return Fields.model_validate(
            {"fields": [_filled(field, given) for field in argument.fields]}
        )
    return given[argument.parameter] if isinstance(argument, Parameter) else argument


def _site(call: relax.Call) -> Site:
    return callee(call) or "", *(getattr(arg, "name", "") for arg in call.args[1])


def _pattern(module: tvm.IRModule, call: relax.Call) -> int:
    attrs = module[call.args[0]].attrs or {}
    return int(attrs.get(_PATTERN, _OPAQUE))
