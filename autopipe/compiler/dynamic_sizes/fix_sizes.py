"""Specialize a model with dynamic shapes for static sizes.

    main(x: Tensor([1, 3, 32 * height, 32 * width]), sizes: Shape([height, width]), weights...)

With 640 and 320 it becomes

    main(x: Tensor([1, 3, 640, 320]), sizes: Shape([20, 10]), weights...)

Kernels that converters wrote for every size are then called with tensors of static shapes:

    call_tir(pad, (x,), Tensor([1, 16512]))      with pad(x: [1, n], y: [1, n + 512])

TVM's fusion would take `16000 + 512` and 16512 for two extents. So such a call gets a specialized
kernel with constant extents, as in a build for that size alone.
"""

from collections.abc import Iterator
from functools import partial

import tvm
from tvm import relax, tirx
from tvm.relax import transform
from tvm.sym import Analyzer

from autopipe.compiler.arithmetic import (  # noqa: F401 - they register legalizations of integer ops
    integer_division,
    wrapping_integers,
)
from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    Counts,
    bind_kernel_sizes,
    list_size_params,
    open_variables,
)
from autopipe.compiler.graph.calls import find_callee, graph_functions, list_result_types
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.graph.shared_legalization import legalize_constants_only
from autopipe.compiler.recurrence.fix_recurrence import bind_recurrent_sizes
from autopipe.compiler.recurrence.form import ATTRIBUTE


def bind_sizes(module: tvm.IRModule, counts: Counts) -> tvm.IRModule:
    """Bind the dynamic sizes of a module of Relax ops."""
    for variable, function in graph_functions(module):
        size_names = {str(var.name) for var in relax.analysis.defined_symbolic_vars(function)}
        bound_counts = {name: count for name, count in counts.items() if name in size_names}
        if bound_counts:
            module = transform.BindSymbolicVars(bound_counts, str(variable.name_hint))(module)
    module = specialize_kernels(bind_recurrent_sizes(module))
    with legalize_constants_only():
        return transform.FoldConstant()(module)


def specialize_kernels(module: tvm.IRModule) -> tvm.IRModule:
    """Specialize the dynamic kernels of a module for sizes that are static at their calls."""
    if not any(map(_is_open, module.functions.values())):
        return module
    specialized_module = rewrite_calls(partial(_specialize_call, module), module)
    return transform.DeadCodeElimination()(specialized_module)


def _is_open(function: object) -> bool:
    """Tell whether a kernel has dynamic sizes; recurrent layers are rebuilt from their form."""
    return (
        isinstance(function, tirx.PrimFunc)
        and ATTRIBUTE not in (function.attrs or {})
        and bool(open_variables(function))
    )


def _specialize_call(module: tvm.IRModule, site: CallSite) -> relax.Expr:
    """Specialize the kernel of a call if it has dynamic sizes."""
    call = site.call
    if find_callee(call) is None or not _is_open(module[call.args[0]]):
        return call
    function = module[call.args[0]]
    counts = _solve_sizes(function, call)
    if counts is None:
        return call
    kernel = bind_kernel_sizes(tvm.IRModule({"main": function}), counts)["main"]
    name = str(call.args[0].name_hint)
    variable = site.builder.add_func(kernel.without_attr("global_symbol"), name)
    tensors = [field for field in call.args[1].fields if isinstance(field.ty, relax.TensorType)]
    return relax.call_tir(variable, tensors, _list_simple_types(call))


def _solve_sizes(function: tirx.PrimFunc, call: relax.Call) -> Counts | None:
    """Solve for the dynamic sizes of a kernel at a call, or None if one is not static."""
    if not isinstance(call.args[1], relax.Tuple):
        return None
    names = [str(variable.name) for variable in open_variables(function)]
    counts: dict[str, int] = {}
    for formal, actual in _pair_extents(function, call):
        if isinstance(actual, tirx.IntImm):
            counts |= _solve_extent(formal, int(actual))
    distinct = len(set(names)) == len(names)
    return counts if distinct and counts.keys() >= set(names) else None


def _solve_extent(extent: tvm.ir.Expr, value: int) -> Counts:
    """Solve `extent = value` for the size in the extent; empty where it is not determined.

    Example: where `4 * rows + 2` is 22, rows are 5.
    """
    if isinstance(extent, tirx.Var):
        return {str(extent.name): value}
    if not isinstance(extent, tirx.Add | tirx.Sub | tirx.Mul):
        return {}
    inner, number = extent.a, extent.b
    if isinstance(inner, tirx.IntImm) and not isinstance(extent, tirx.Sub):
        inner, number = number, inner
    if not isinstance(number, tirx.IntImm):
        return {}
    if isinstance(extent, tirx.Mul):
        is_exact = int(number) and value % int(number) == 0
        return _solve_extent(inner, value // int(number)) if is_exact else {}
    offset = int(number) if isinstance(extent, tirx.Sub) else -int(number)
    return _solve_extent(inner, value + offset)


def _pair_extents(
    function: tirx.PrimFunc, call: relax.Call
) -> Iterator[tuple[tvm.ir.Expr, tvm.ir.Expr | None]]:
    """Yield (formal, actual) of each extent and scalar of a kernel's parameters at a call."""
    argument_types = [*_list_field_types(call), *_list_simple_types(call)]
    buffers = [param for param in function.params if isinstance(param.ty, tirx.BufferType)]
    numbers = [param for _, param in list_size_params(function)]
    tensors = [kind for kind in argument_types if isinstance(kind, relax.TensorType)]
    for buffer, tensor in zip(buffers, tensors, strict=True):
        shape = tensor.shape
        is_known = isinstance(shape, relax.ShapeExpr)
        actual = map(_simplify_extent, shape.values) if is_known else [None] * tensor.ndim
        yield from zip(buffer.ty.shape, actual, strict=True)
    scalar_arguments = (value for value in argument_types if isinstance(value, tvm.ir.Expr))
    yield from zip(numbers, map(_simplify_extent, scalar_arguments), strict=True)


def _list_field_types(call: relax.Call) -> Iterator[relax.TensorType | tvm.ir.Expr]:
    """Yield the types of tensor arguments of a call, and its scalar arguments themselves."""
    for field in call.args[1].fields:
        yield field.ty if isinstance(field.ty, relax.TensorType) else field


def _simplify_extent(extent: tvm.ir.Expr) -> tvm.ir.Expr:
    """Fold a bound extent, such as `4 * 5`."""
    return Analyzer().simplify(extent)


def _list_simple_types(call: relax.Call) -> list[tvm.ir.Type]:
    """List the types of the results of a call, with simplified sizes."""
    return [
        relax.TensorType(list(map(_simplify_extent, kind.shape.values)), kind.dtype)
        if isinstance(kind.shape, relax.ShapeExpr)
        else kind
        for kind in list_result_types(call)
    ]
