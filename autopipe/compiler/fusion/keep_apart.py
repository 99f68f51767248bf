"""Keeps apart what TVM's fusion puts together, and can not make one kernel of.

    group(past, Shape([new])):
        lv = shape_to_tensor(past)             # `past` is a number here
        lv1 = arange(Shape([new]))             # `new` is a number and an extent
        return add(lv1, lv)

With open sizes `FuseTIR` fails on some groups: it defines a size twice that is a number of one
kernel and an extent of another. Two forms of an extent it matches part by part: of `n + m + n` and
`n * 2 + m` it takes the last `n` for `m`, and makes buffers of a wrong size. The kernels that take
numbers become opaque there, and if that is not enough, all of the group.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.transform import FuseTIR

from autopipe.compiler.dynamic_sizes.kernel_sizes import list_size_params
from autopipe.compiler.graph.calls import find_callee, graph_functions, is_fused, list_bindings
from autopipe.tasks.op_info import KINDS

_PATTERN: Final = "op_pattern"
_OPAQUE: Final = KINDS.index("opaque")
"""TVM's number for what is never put together with anything."""

Fuse = Callable[[tvm.IRModule], tvm.IRModule]
"""Returns a legalized module with its calls fused."""


def fuse_mergeable(module: tvm.IRModule, fuse: Fuse) -> tvm.IRModule:
    """Return a legalized module with its calls fused into groups that become a kernel each."""
    fused = fuse(module)
    if not _is_open(fused):
        return fused
    while not _can_merge_groups(fused) and (names := _find_unmergeable(module, fused)):
        module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
        for name in names:
            module.update_func(
                module.get_global_var(name), module[name].with_attr(_PATTERN, _OPAQUE)
            )
        fused = fuse(module)
    return fused


def _is_open(module: tvm.IRModule) -> bool:
    """Tell whether a function of the graph has open sizes; groups of others always merge."""
    return any(
        bool(relax.analysis.defined_symbolic_vars(function))
        for _, function in graph_functions(module)
    )


def _can_merge_groups(module: tvm.IRModule) -> bool:
    """Tell whether TVM can make a kernel of each group."""
    functions = (function for _, function in module.functions_items())
    groups = [one for one in functions if isinstance(one, relax.Function) and is_fused(one)]
    calls = [one.value for group in groups for one in list_bindings(group)]
    named = ((name, call) for call in calls if (name := find_callee(call)) is not None)
    if not all(_has_same_forms(module[name], call.args[1].fields) for name, call in named):
        return False
    try:
        FuseTIR()(module)
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def _has_same_forms(kernel: tirx.PrimFunc, arguments: Sequence[Any]) -> bool:
    """Tell whether extents of parameters have the form of those of what a kernel is called with."""
    pairs: list[tuple[Any, Any]] = []
    for param, argument in zip(kernel.params, arguments, strict=False):
        if not isinstance(param.ty, tirx.BufferType):
            pairs.append((param, argument))
        elif isinstance(getattr(argument.ty, "shape", None), relax.ShapeExpr):
            pairs += zip(param.ty.shape, argument.ty.shape.values, strict=True)
    values = [(extent, given) for extent, given in pairs if isinstance(extent, tirx.Var)]

    def bound(variable: tvm.ir.Var) -> tvm.ir.Expr:
        return next((given for one, given in values if one.same_as(variable)), variable)

    return all(
        isinstance(given, tirx.IntImm)
        or tvm_ffi.structural_equal(tvm_ffi.structural_map(extent, (tvm.ir.Var, bound)), given)
        for extent, given in pairs
        if not isinstance(extent, tirx.Var | tirx.IntImm)
    )


def _find_unmergeable(module: tvm.IRModule, fused: tvm.IRModule) -> list[str]:
    """Return the kernels that are to be opaque next; none if there is nothing left to do."""
    found: dict[str, None] = {}
    for variable, group in fused.functions_items():
        if not isinstance(group, relax.Function) or not is_fused(group):
            continue
        if not _can_merge_groups(_isolate_group(fused, variable, group)):
            names = [
                name for one in list_bindings(group) if (name := find_callee(one.value)) is not None
            ]
            fresh = [name for name in names if not _is_opaque(module[name])]
            numbers = [name for name in fresh if _has_size_params(module[name])]
            found |= dict.fromkeys(numbers or fresh)
    return list(found)


def _is_opaque(kernel: tirx.PrimFunc) -> bool:
    return int((kernel.attrs or {}).get(_PATTERN, 0)) == _OPAQUE


def _has_size_params(kernel: tirx.PrimFunc) -> bool:
    """Tell whether a kernel is given sizes as numbers, or only a result to fill."""
    return bool(list_size_params(kernel)) or len(kernel.params) == 1


def _isolate_group(
    fused: tvm.IRModule, variable: tvm.ir.GlobalVar, group: relax.Function
) -> tvm.IRModule:
    """Return a module whose `main` calls one group and nothing else."""
    kernels = {v: f for v, f in fused.functions_items() if isinstance(f, tirx.PrimFunc)}
    builder = relax.BlockBuilder(tvm.IRModule({**kernels, variable: group}))
    params = [relax.Var(param.name, param.ty) for param in group.params]
    with builder.function("main", params):
        with builder.dataflow():
            called = builder.emit_output(relax.Call(variable, params))
        builder.emit_func_output(called)
    return builder.get()
