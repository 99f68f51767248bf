"""Op information on PrimFuncs: read from Relax ops, and kept through lowering and fusion.

It is read after layout conversion and directly before legalization, so its shapes, layouts and
attributes are those of the loops.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.calls import (
    find_callee,
    find_fused_function,
    graph_functions,
    is_kernel_call,
    list_bindings,
)
from autopipe.compiler.graph.legalized_op import describe_legalized_op
from autopipe.compiler.graph.literals import list_tensors, read_literal
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
"""Key of a call: the names of its function and of its arguments."""


@dataclass(frozen=True, slots=True)
class CallInfos:
    """The ops of the calls of a module.

    Fusion renames the results of its functions, but not the operands inside them. Constant folding
    replaces names by constants. Neither changes the PrimFunc that is called.
    """

    by_site: Mapping[Site, CallInfo]
    by_function: Mapping[str, CallInfo]
    """By the PrimFunc that is called; ops with the same code are distinguished by site."""

    def of(self, call: relax.Call) -> CallInfo:
        """Return the op of a call, inside or outside of a function of `FuseOps`."""
        return self.by_site.get(_make_site(call)) or self.by_function[find_callee(call) or ""]


class _Names:
    """Unique names of the variables of a graph, which identify their ops after lowering."""

    def __init__(self) -> None:
        self.labels: dict[str, Label] = {}
        self._renamed: dict[relax.Var, relax.Var] = {}
        self._taken: set[str] = set()
        self._ops = 0

    def rename(self, function: relax.Function) -> tuple[relax.Function, dict[str, relax.Expr]]:
        """Rename the variables of a function uniquely; return it and the value of each name.

        Values keep their types: inferring them anew takes longer than the rest of this pass.
        """
        for param in function.params:
            self._keep_name(param)
        names = [self._name_binding(binding) for binding in list_bindings(function)]
        new_function = tvm_ffi.structural_map(
            function, (relax.Var, lambda variable: self._renamed.get(variable, variable))
        )
        values = [binding.value for binding in list_bindings(new_function)]
        return new_function, {
            name: value for name, value in zip(names, values, strict=True) if name is not None
        }

    def _name_binding(self, binding: relax.Binding) -> str | None:
        """Name a variable after the number of its op; None if it is that of a `match_cast`."""
        variable = binding.var
        is_inner = isinstance(variable, relax.DataflowVar)
        if isinstance(binding, relax.MatchCast):
            if not is_inner:
                self._keep_name(variable)
            return None
        name = self._make_unique(f"op{self._ops}")
        self._ops += 1
        if (label := read_label(variable.name)) is not None:
            self.labels[name] = label
        kind = relax.DataflowVar if is_inner else relax.Var
        self._renamed[variable] = kind(name, variable.ty)
        return name

    def _keep_name(self, variable: relax.Var) -> None:
        """Keep the name of a variable, without the label, if it is unique."""
        name = self._make_unique(strip_label(variable.name))
        self._taken.add(name)
        if name != variable.name:
            self._renamed[variable] = relax.Var(name, variable.ty)

    def _make_unique(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        return name


def name_ops(
    module: tvm.IRModule,
) -> tuple[tvm.IRModule, Mapping[str, relax.Expr], Mapping[str, Label]]:
    """Rename the variables of a module uniquely; return it, and op and label of each name."""
    names, ops = _Names(), dict[str, relax.Expr]()
    named_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        new_function, values = names.rename(function)
        named_module.update_func(variable, new_function)
        ops |= values
    return named_module, ops, names.labels


def collect_call_infos(module: tvm.IRModule, ops: Mapping[str, relax.Expr]) -> CallInfos:
    """Collect the op of each call of a PrimFunc in a legalized module.

    An op may be legalized to several bindings. Only the last has a name; those before belong to it.
    """
    sites: dict[Site, CallInfo] = {}
    functions: dict[str, CallInfo] = {}
    descriptions = _DescribedCalls(module, ops)
    for _, function in graph_functions(module):
        pending: list[relax.Call] = []
        for binding in list_bindings(function):
            if is_kernel_call(binding.value):
                pending.append(binding.value)
            if (op := ops.get(binding.var.name)) is None:
                continue
            for call in pending:
                site = _make_site(call)
                sites[site] = part = descriptions.describe(
                    op, call, site[0], is_whole=len(pending) == 1
                )
                functions.setdefault(site[0], part)
            pending = []
    return CallInfos(sites, functions)


class _DescribedCalls:
    """Descriptions of kernel calls, cached for equal calls of the same op."""

    def __init__(self, module: tvm.IRModule, ops: Mapping[str, relax.Expr]) -> None:
        self._module, self._ops = module, ops
        self._is_static = not any(  # otherwise descriptions contain names of sizes
            map(relax.analysis.defined_symbolic_vars, map(itemgetter(1), graph_functions(module)))
        )
        self._known: dict[tuple[int, str], tuple[relax.Expr, CallInfo]] = {}
        """By the hash of the op and the name of the kernel."""

    def describe(
        self, value: relax.Expr, call: relax.Call, kernel: str, *, is_whole: bool
    ) -> CallInfo:
        """Describe a call of a kernel, which computes an op or a part of one."""
        if not (is_whole and self._is_static and _reads_tensors(value)):
            return self._describe(value, call, is_whole=is_whole)
        key = tvm_ffi.structural_hash(value, map_free_vars=True), kernel
        if (known_call := self._known.get(key)) is not None:
            known_value, info = known_call
            if tvm_ffi.structural_equal(known_value, value, map_free_vars=True):
                return info
        info = self._describe(value, call, is_whole=is_whole)
        self._known[key] = value, info
        return info

    def _describe(self, value: relax.Expr, call: relax.Call, *, is_whole: bool) -> CallInfo:
        op = describe_legalized_op(value, call, self._ops, is_whole=is_whole)
        return CallInfo(op, _read_pattern(self._module, call))


def _reads_tensors(value: relax.Expr) -> bool:
    """Tell whether all operands of an op are tensors, shapes or numbers, and none is a tuple."""
    return isinstance(value, relax.Call) and not any(
        isinstance(argument, relax.Tuple) or isinstance(argument.ty, relax.TupleType)
        for argument in value.args
    )


def describe_functions(module: tvm.IRModule, call_infos: CallInfos) -> dict[str, OpInfo]:
    """Collect the op information of each function that the graph calls after `FuseOps`."""
    infos: dict[str, OpInfo] = {}
    calls = (
        binding.value for _, graph in graph_functions(module) for binding in list_bindings(graph)
    )
    for value in calls:
        name = find_callee(value)
        if name is not None:
            if name not in infos:
                part = call_infos.of(value)
                kind = KINDS[part.pattern]
                infos[name] = OpInfo(kind=kind, ops=(part.op,), results=part.op.results(0))
        elif (
            isinstance(value, relax.Call)
            and isinstance(value.op, tvm.ir.GlobalVar)
            and value.op.name_hint not in infos
            and (function := find_fused_function(module, value)) is not None
        ):
            infos[value.op.name_hint] = _DataFlow(function, call_infos).info()
    return infos


def attach_op_infos(module: tvm.IRModule, infos: Mapping[str, OpInfo]) -> tvm.IRModule:
    """Attach op information to the PrimFuncs of a module, as an attribute."""
    for name, info in infos.items():
        variable = module.get_global_var(name)
        text = info.model_dump_json()
        module.update_func(variable, module[variable].with_attr(ATTRIBUTE, text))
    return module


def read_op_info(function: tvm.tirx.PrimFunc) -> OpInfo:
    """Read the op information of a PrimFunc; empty if it has none."""
    attrs = function.attrs or {}
    if ATTRIBUTE in attrs:
        return OpInfo.model_validate_json(str(attrs[ATTRIBUTE]))
    return OpInfo(kind=KINDS[int(attrs.get(_PATTERN, _OPAQUE))])


def annotate_workload(module: tvm.IRModule, info: OpInfo) -> tvm.IRModule:
    """Attach op information to `main` of a workload module.

    The information is not part of the identity of the workload. Without ops the module is returned
    unchanged.
    """
    if not info.ops:
        return module
    function = module["main"].with_attr(ATTRIBUTE, info.model_dump_json())
    return tvm.IRModule({"main": function})


class _DataFlow:
    """The dataflow between the ops of a fused function."""

    def __init__(self, function: relax.Function, call_infos: CallInfos) -> None:
        self._function = function
        self._known = call_infos
        self._values: dict[str, tuple[Argument, ...]] = {}
        self._ops: list[Op] = []
        self._patterns: list[int] = []

    def info(self) -> OpInfo:
        count = 0
        for param in self._function.params:
            width = len(list_tensors(param.ty))
            self._values[param.name] = tuple(Parameter(parameter=count + i) for i in range(width))
            count += width
        for binding in list_bindings(self._function):
            self._values[binding.var.name] = tuple(self._list_results(binding))
        kind = KINDS[max(self._patterns, default=_OPAQUE)]
        results = tuple(self._resolve_value(self._function.body.body))
        return OpInfo(kind=kind, ops=tuple(self._ops), results=results)

    def _list_results(self, binding: relax.Binding) -> Iterator[Argument]:
        """Yield an argument for each tensor of a binding."""
        value = binding.value
        if not is_kernel_call(value):
            yield from self._resolve_value(value)
            return
        part = self._known.of(value)
        call_arguments = [item for arg in value.args[1] for item in self._resolve_value(arg)]
        arguments = tuple(
            _fill_parameters(argument, call_arguments) for argument in part.op.arguments
        )
        yield from part.op.results(len(self._ops))
        self._ops.append(part.op.model_copy(update={"arguments": arguments}))
        self._patterns.append(part.pattern)

    def _resolve_value(self, value: relax.Expr) -> Sequence[Argument]:
        if isinstance(value, relax.Tuple):
            return [item for field in value.fields for item in self._resolve_value(field)]
        if isinstance(value, relax.TupleGetItem):
            return [self._resolve_value(value.tuple_value)[value.index]]
        if isinstance(value, relax.Var) and not isinstance(value.ty, tvm.ir.PrimType):
            return self._values[value.name]
        return [read_literal(value)]


def _fill_parameters(argument: Argument, call_arguments: Sequence[Argument]) -> Argument:
    """Replace the parameters of a function by the arguments of a call."""
    if isinstance(argument, Fields):
        return Fields.model_validate(
            {"fields": [_fill_parameters(field, call_arguments) for field in argument.fields]}
        )
    return call_arguments[argument.parameter] if isinstance(argument, Parameter) else argument


def _make_site(call: relax.Call) -> Site:
    return find_callee(call) or "", *(getattr(arg, "name", "") for arg in call.args[1].fields)


def _read_pattern(module: tvm.IRModule, call: relax.Call) -> int:
    attrs = module[call.args[0]].attrs or {}
    return int(attrs.get(_PATTERN, _OPAQUE))
