"""Check a parsed source: completeness, static sizes, and accesses within buffers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock
from tvm.s_tir.analysis import OOBChecker, verify_well_formed

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.frontends.tvmscript import attributes, vocabulary
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.errors import ModelError

_MAX_ELEMENTS: Final = 2**31


def check_module(module: tvm.IRModule | tirx.PrimFunc) -> None:
    """Raise `ModelError` if a module is not a model of Relax and PrimFuncs that TVM can compile."""
    if isinstance(module, tirx.PrimFunc):
        _check_functions(tvm.IRModule({"main": module}))
        return
    functions = [f for f in module.functions.values() if not isinstance(f, tirx.PrimFunc)]
    if len(functions) != 1 or "main" not in {v.name_hint for v in module.get_global_vars()}:
        if functions or len(list_prim_funcs(module)) != 1:
            raise ModelError("a model of several functions has one Relax function, named main")
        _check_functions(module)
        return
    _check_functions(module)
    _check_attributes("main", attributes.MAINS, module["main"].attrs)
    _check_calls("main", module["main"])
    for binding in list_bindings(module["main"]):
        _check_binding(module, binding)
    if not relax.analysis.check_well_formed(module):
        raise ModelError("main is not well-formed Relax")


def _check_functions(module: tvm.IRModule) -> None:
    """Check the PrimFuncs of a module."""
    for name, function in list_prim_funcs(module):
        if name == TRANSFORM:
            raise ModelError(f"{name}: a function of autopipe has this name; take another")
        _check_attributes(name, attributes.FUNCTIONS, function.attrs)
        _check_calls(name, function.body)
        _check_blocks(name, function)
        for param in function.params:
            if not isinstance(param.ty, tirx.BufferType):
                raise ModelError(f"{name}: parameter {param.name!r} is no T.Buffer")
            read_static_sizes(f"{name}: buffer {param.name!r}", param.shape)
        single_module = tvm.IRModule({name: function})
        try:
            verify_well_formed(single_module)
            OOBChecker()(single_module)
        except Exception as error:  # noqa: BLE001 - TVM raises anything
            raise ModelError(f"{name}: {_find_last_line(error)}") from None


def _check_attributes(
    name: str, rules: Mapping[str, attributes.Fits], attrs: Mapping[str, object] | None
) -> None:
    for key, value in (attrs or {}).items():
        plain = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        kind = "annotation" if rules is attributes.BLOCKS else "attribute"
        if reason := attributes.find_fault(kind, rules, str(key), plain):
            raise ModelError(f"{name}: {reason}")


def _check_calls(name: str, part: tvm.ir.Node) -> None:
    """Reject operators outside of the vocabulary, and functions that the module does not define."""
    for function in find_nodes(part, relax.ExternFunc):
        raise ModelError(f"{name}: {str(function.global_symbol)!r} is a function from elsewhere")
    for call in find_nodes(part, tvm.ir.Call):
        if isinstance(call.op, tvm.ir.Op) and not vocabulary.is_known_op(call.op.name):
            raise ModelError(f"{name}: {call.op.name} is not allowed in a model")


def _check_blocks(name: str, function: tirx.PrimFunc) -> None:
    for block in find_nodes(function.body, SBlock):
        _check_attributes(name, attributes.BLOCKS, block.annotations)
        for buffer in block.alloc_buffers:
            read_static_sizes(f"{name}: buffer {buffer.name!r}", buffer.shape)


def _check_binding(module: tvm.IRModule, binding: relax.Binding) -> None:
    value = binding.value
    if isinstance(value, relax.If):
        raise ModelError("main has a branch, which a model in TVMScript cannot have")
    shape = getattr(getattr(value.ty, "shape", None), "values", None)
    if shape is not None and all(isinstance(extent, tirx.IntImm) for extent in shape):
        read_static_sizes(f"value {binding.var.name!r}", shape)
    name = find_callee(value)
    if name is None:
        return
    fields = value.args[1].ty.fields
    results = value.ty.fields if isinstance(value.ty, relax.TupleType) else [value.ty]
    argument_types = [_format_tensor(field.shape, field.dtype) for field in (*fields, *results)]
    parameter_types = [_format_tensor(param.shape, param.dtype) for param in module[name].params]
    if argument_types != parameter_types:
        raise ModelError(
            f"{name} takes {', '.join(parameter_types)}; main calls it with "
            f"{', '.join(argument_types)}"
        )


def read_static_sizes(label: str, shape: Sequence[Any] | None) -> tuple[int, ...]:
    """Return the sizes of a tensor. Raises `ModelError` if one is unknown or absurdly large."""
    if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise ModelError(f"{label} has a size that is not known before the model runs")
    sizes = tuple(int(extent) for extent in shape)
    if min(sizes, default=1) < 1 or math.prod(sizes) > _MAX_ELEMENTS:
        raise ModelError(f"{label} is {list(sizes)}, more than {_MAX_ELEMENTS} elements or none")
    return sizes


def _format_tensor(shape: Sequence[Any], dtype: object) -> str:
    extents = (str(int(e)) if isinstance(e, tirx.IntImm) else str(e) for e in shape)
    return f"{dtype}[{', '.join(extents)}]"


def _find_last_line(error: Exception) -> str:
    lines = list(_list_lines(str(error)))
    return lines[-1][:500] if lines else "not well-formed"


def _list_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield line.strip().removeprefix("Error message: ")
