"""Prevent groups of TVM's fusion that TVM cannot merge into one kernel.

    group(past, Shape([new])):
        lv = shape_to_tensor(past)             # `past` is a number here
        lv1 = arange(Shape([new]))             # `new` is a number and an extent
        return add(lv1, lv)

With dynamic shapes `FuseTIR` fails on some groups: it defines a size twice that is a scalar of one
kernel and an extent of another. It matches two forms of an extent operand by operand: for `n + m +
n` and `n * 2 + m` it takes the last `n` for `m`, and allocates buffers of a wrong size. The kernels
with scalar parameters become opaque there, and if that is not enough, all of the group.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.transform import FuseTIR

from autopipe.compiler.dynamic_sizes.kernel_sizes import list_size_params
from autopipe.compiler.graph.calls import find_callee, graph_functions, is_fused, list_bindings
from autopipe.compiler.loops.copy_loops import replace_variables
from autopipe.tasks.op_info import KINDS

_PATTERN: Final = "op_pattern"
_OPAQUE: Final = KINDS.index("opaque")
"""TVM's pattern kind of kernels that are never fused."""

Fuse = Callable[[tvm.IRModule], tvm.IRModule]
"""Fuses the calls of a legalized module."""


def fuse_mergeable(module: tvm.IRModule, fuse: Fuse) -> tvm.IRModule:
    """Fuse the calls of a legalized module into groups that TVM can merge into one kernel each."""
    fused_module = fuse(module)
    if not _is_open(fused_module):
        return fused_module
    while not _can_merge_groups(fused_module) and (
        names := _find_unmergeable(module, fused_module)
    ):
        module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
        for name in names:
            module.update_func(
                module.get_global_var(name), module[name].with_attr(_PATTERN, _OPAQUE)
            )
        fused_module = fuse(module)
    return fused_module


def _is_open(module: tvm.IRModule) -> bool:
    """Tell whether a function of the graph has dynamic shapes; otherwise all groups merge."""
    return any(
        bool(relax.analysis.defined_symbolic_vars(function))
        for _, function in graph_functions(module)
    )


def _can_merge_groups(module: tvm.IRModule) -> bool:
    """Tell whether TVM can merge each group into a kernel."""
    functions = (function for _, function in module.functions_items())
    groups = [f for f in functions if isinstance(f, relax.Function) and is_fused(f)]
    calls = [binding.value for group in groups for binding in list_bindings(group)]
    callees = ((name, call) for call in calls if (name := find_callee(call)) is not None)
    if not all(_has_same_forms(module[name], call.args[1].fields) for name, call in callees):
        return False
    try:
        FuseTIR()(module)
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def _has_same_forms(kernel: tirx.PrimFunc, arguments: Sequence[Any]) -> bool:
    """Tell whether the extents of parameters have the same form as those of the arguments.

    A variable of the kernel that is no extent itself, such as `n` of `n * 2`, may stand for any
    variable of the arguments, but no two for the same.
    """
    pairs: list[tuple[Any, Any]] = []
    for param, argument in zip(kernel.params, arguments, strict=False):
        if not isinstance(param.ty, tirx.BufferType):
            pairs.append((param, argument))
        elif isinstance(getattr(argument.ty, "shape", None), relax.ShapeExpr):
            pairs += zip(param.ty.shape, argument.ty.shape.values, strict=True)
    values = [(extent, actual) for extent, actual in pairs if isinstance(extent, tirx.Var)]
    forms = [
        (replace_variables(extent, values), actual)
        for extent, actual in pairs
        if not isinstance(extent, tirx.Var | tirx.IntImm) and not isinstance(actual, tirx.IntImm)
    ]
    forms += [(actual, actual) for _, actual in values]  # no other variable stands for these
    extents, actuals = [extent for extent, _ in forms], [actual for _, actual in forms]
    return tvm_ffi.structural_equal(extents, actuals, map_free_vars=True)


def _find_unmergeable(module: tvm.IRModule, fused_module: tvm.IRModule) -> list[str]:
    """List the kernels to make opaque next; empty if all of them are."""
    kernel_names: dict[str, None] = {}
    for variable, group in fused_module.functions_items():
        if not isinstance(group, relax.Function) or not is_fused(group):
            continue
        if not _can_merge_groups(_isolate_group(fused_module, variable, group)):
            names = [
                name for b in list_bindings(group) if (name := find_callee(b.value)) is not None
            ]
            fresh = [name for name in names if not _is_opaque(module[name])]
            numbers = [name for name in fresh if _has_size_params(module[name])]
            kernel_names |= dict.fromkeys(numbers or fresh)
    return list(kernel_names)


def _is_opaque(kernel: tirx.PrimFunc) -> bool:
    return int((kernel.attrs or {}).get(_PATTERN, 0)) == _OPAQUE


def _has_size_params(kernel: tirx.PrimFunc) -> bool:
    """Tell whether a kernel has scalar size parameters, or no input."""
    return bool(list_size_params(kernel)) or len(kernel.params) == 1


def _isolate_group(
    fused_module: tvm.IRModule, variable: tvm.ir.GlobalVar, group: relax.Function
) -> tvm.IRModule:
    """Build a module with a `main` that only calls one group."""
    kernels = {v: f for v, f in fused_module.functions_items() if isinstance(f, tirx.PrimFunc)}
    builder = relax.BlockBuilder(tvm.IRModule({**kernels, variable: group}))
    params = [relax.Var(param.name, param.ty) for param in group.params]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(variable, params))
        builder.emit_func_output(result)
    return builder.get()
