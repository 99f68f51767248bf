"""Which Relax ops a PrimFunc came from, kept beside it when lowering would forget them.

The question is the one of the Relax discussion "Extract Op Info from Primfunc": a pass that works
on TIR wants the operator's name and attributes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.rewrite import rewrite_main

OpInfo = dict[str, Any]
"""One op: `{"op": "nn.conv2d", "attrs": {"strides": [1, 1], ...}}`."""

PATTERNS = (
    "elementwise", "broadcast", "injective", "reduction", "out_elementwise_fusable",
    "unused", "unused", "tuple", "opaque",
)  # fmt: skip
"""TVM's op pattern kinds, by number; a fused function has the largest of its parts."""

_OPAQUE = PATTERNS.index("opaque")


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """What a PrimFunc came from."""

    ops: tuple[OpInfo, ...]
    """Its ops in dataflow order."""
    pattern: int
    """Its op pattern kind, an index into `PATTERNS`."""


@mutator
class _NameBindings(PyExprMutator):
    """Give each binding of `main` a name of its own, so that ops can be found again by it."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.ops: dict[str, OpInfo] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        name = f"op{len(self.ops)}"
        self.ops[name] = _describe(value)
        kind = relax.DataflowVar if isinstance(binding.var, relax.DataflowVar) else relax.Var
        renamed = kind(name, binding.var.ty)
        self.builder_.emit_normalized(relax.VarBinding(renamed, value))
        self.set_var_remap(binding.var, renamed)


def name_ops(module: tvm.IRModule) -> tuple[tvm.IRModule, Mapping[str, OpInfo]]:
    """Return the module with uniquely named bindings in `main`, and the op of each name."""
    naming = _NameBindings(module)
    return rewrite_main(naming, module), naming.ops


def ops_by_function(
    legalized: tvm.IRModule, ops: Mapping[str, OpInfo]
) -> Mapping[str, FunctionInfo]:
    """Return the ops behind each PrimFunc of a legalized, not yet fused module.

    A legalization may take several bindings; those before a named one belong to its op.
    """
    found: dict[str, FunctionInfo] = {}
    pending: list[str] = []
    for binding in bindings(legalized["main"]):
        called = callee(binding.value)
        if called is not None:
            pending.append(called)
        info = ops.get(binding.var.name)
        if info is None:
            continue
        for function in pending:
            attrs = legalized[function].attrs
            pattern = attrs.get("op_pattern", _OPAQUE) if attrs else _OPAQUE
            found.setdefault(function, FunctionInfo((info,) if info["op"] else (), int(pattern)))
        pending = []
    return found


def ops_of_fused(
    fused: tvm.IRModule, ops: Mapping[str, FunctionInfo]
) -> Mapping[str, FunctionInfo]:
    """Return the ops of each function after `FuseOps`, in dataflow order."""
    merged = dict(ops)
    for global_var, function in fused.functions_items():
        if not isinstance(function, relax.Function) or global_var.name_hint == "main":
            continue
        parts = [ops[name] for name in callees(function) if name in ops]
        merged[global_var.name_hint] = FunctionInfo(
            tuple(info for part in parts for info in part.ops),
            max((part.pattern for part in parts), default=_OPAQUE),
        )
    return merged


def callees(function: relax.Function) -> list[str]:
    """Return the PrimFunc of each `call_tir` of a function, in order."""
    called = (callee(binding.value) for binding in bindings(function))
    return [name for name in called if name is not None]


def bindings(function: relax.Function) -> list[relax.Binding]:
    """Return the bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def callee(value: relax.Expr) -> str | None:
    """Return the name of the PrimFunc that a `call_tir` calls; None for any other value."""
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir":
        return str(value.args[0].name_hint)
    return None


def _describe(value: relax.Expr) -> OpInfo:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return {"op": "", "attrs": {}}
    return {"op": value.op.name.removeprefix("relax."), "attrs": _attributes(value.attrs)}


def _attributes(attrs: Any) -> dict[str, Any]:  # noqa: ANN401 - TVM's attribute classes share no type
    if attrs is None:
        return {}
    fields = type(attrs).__tvm_ffi_type_info__.fields
    return {field.name: _plain(getattr(attrs, field.name)) for field in fields}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever an attribute holds, as JSON
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return value.value
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "items"):
        return [_plain(item) for item in value]
    return str(value)
