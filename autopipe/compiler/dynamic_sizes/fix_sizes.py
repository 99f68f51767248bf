"""A model whose sizes are open, made one for certain sizes.

    main(x: Tensor([1, 3, 32 * height, 32 * width]), sizes: Shape([height, width]), weights...)

With 640 and 320 it becomes

    main(x: Tensor([1, 3, 640, 320]), sizes: Shape([20, 10]), weights...)

Kernels that converters wrote for every size are called with tensors of known shapes then:

    call_tir(pad, (x,), Tensor([1, 16512]))      with pad(x: [1, n], y: [1, n + 512])

TVM's fusion would take `16000 + 512` and 16512 for two extents. So such a call gets a kernel of its
own, in which all are numbers, as a build for that size alone has it.
"""

from collections.abc import Iterator

import tvm
from tvm import relax, tirx
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer

from autopipe.compiler.arithmetic import (  # noqa: F401 - they register how integers are legalized
    integer_division,
    wrapping_integers,
)
from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    Counts,
    bind_kernel_sizes,
    list_size_params,
    open_variables,
)
from autopipe.compiler.graph.calls import find_callee, graph_functions
from autopipe.compiler.recurrence.fix_recurrence import bind_recurrent_sizes
from autopipe.compiler.recurrence.form import ATTRIBUTE


def bind_sizes(module: tvm.IRModule, counts: Counts) -> tvm.IRModule:
    """Return a module of operators with its open sizes bound."""
    for variable, function in graph_functions(module):
        found = {str(var.name) for var in relax.analysis.defined_symbolic_vars(function)}
        given = {name: count for name, count in counts.items() if name in found}
        if given:
            module = transform.BindSymbolicVars(given, str(variable.name_hint))(module)
    return transform.FoldConstant()(specialize_kernels(bind_recurrent_sizes(module)))


def specialize_kernels(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose kernels have numbers for sizes that are known where they are called."""
    if not any(map(_is_open, module.functions.values())):
        return module
    closer = _Closer(module)
    for variable, function in graph_functions(module):
        closer.builder_.update_func(variable, closer.visit_expr(function))
    return transform.DeadCodeElimination()(closer.builder_.get())


def _is_open(function: object) -> bool:
    """Tell whether a kernel has open sizes; a recurrent layer is written anew from its form."""
    return (
        isinstance(function, tirx.PrimFunc)
        and ATTRIBUTE not in (function.attrs or {})
        and bool(open_variables(function))
    )


@mutator
class _Closer(PyExprMutator):
    """Puts a kernel for certain sizes into the place of one for all."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite a call of a kernel with open sizes."""
        call = self.visit_expr_post_order(call)
        if find_callee(call) is None or not _is_open(self._module[call.args[0]]):
            return call
        function = self._module[call.args[0]]
        counts = _solve_sizes(function, call)
        if counts is None:
            return call
        kernel = bind_kernel_sizes(tvm.IRModule({"main": function}), counts)["main"]
        name = str(call.args[0].name_hint)
        variable = self.builder_.add_func(kernel.without_attr("global_symbol"), name)
        tensors = [one for one in call.args[1].fields if isinstance(one.ty, relax.TensorType)]
        return relax.call_tir(variable, tensors, list(_list_result_types(call)))


def _solve_sizes(function: tirx.PrimFunc, call: relax.Call) -> Counts | None:
    """Return the open sizes of a kernel as a call has them, or None if one is not a number."""
    if not isinstance(call.args[1], relax.Tuple):
        return None
    names = [str(variable.name) for variable in open_variables(function)]
    found: dict[str, int] = {}
    for formal, actual in _pair_extents(function, call):
        if isinstance(actual, tirx.IntImm):
            found |= _solve_extent(formal, int(actual))
    distinct = len(set(names)) == len(names)
    return found if distinct and found.keys() >= set(names) else None


def _solve_extent(extent: tvm.ir.Expr, value: int) -> Counts:
    """Return the size in an extent that has a value; none where the extent does not tell it.

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
        exact = int(number) and value % int(number) == 0
        return _solve_extent(inner, value // int(number)) if exact else {}
    by = int(number) if isinstance(extent, tirx.Sub) else -int(number)
    return _solve_extent(inner, value + by)


def _pair_extents(
    function: tirx.PrimFunc, call: relax.Call
) -> Iterator[tuple[tvm.ir.Expr, tvm.ir.Expr | None]]:
    """Yield each extent and each number of a kernel's parameters with what it is in a call."""
    scalars = call.args[2].values if len(call.args) > 2 else ()  # noqa: PLR2004 - sizes come last
    given = [*_list_field_types(call), *_list_result_types(call), *scalars]
    buffers = [param for param in function.params if isinstance(param.ty, tirx.BufferType)]
    numbers = [param for _, param in list_size_params(function)]
    tensors = [one for one in given if isinstance(one, relax.TensorType)]
    for buffer, tensor in zip(buffers, tensors, strict=True):
        shape = tensor.shape
        known = isinstance(shape, relax.ShapeExpr)
        actual = map(_simplify_extent, shape.values) if known else [None] * tensor.ndim
        yield from zip(buffer.ty.shape, actual, strict=True)
    others = (one for one in given if not isinstance(one, relax.TensorType))
    yield from zip(numbers, map(_simplify_extent, others), strict=True)


def _list_field_types(call: relax.Call) -> Iterator[relax.TensorType | tvm.ir.Expr]:
    """Yield the types of tensors that a kernel is given, and numbers among them as they are."""
    for field in call.args[1].fields:
        yield field.ty if isinstance(field.ty, relax.TensorType) else field


def _list_result_types(call: relax.Call) -> list[tvm.ir.Type]:
    (found,) = call.ty_args
    types = found.fields if isinstance(found, relax.TupleType) else [found]
    return [
        relax.TensorType(list(map(_simplify_extent, one.shape.values)), one.dtype)
        if isinstance(one.shape, relax.ShapeExpr)
        else one
        for one in types
    ]


def _simplify_extent(extent: tvm.ir.Expr) -> tvm.ir.Expr:
    """Compute an extent that is bound, but was not computed yet, as `4 * 5`."""
    return Analyzer().simplify(extent)
