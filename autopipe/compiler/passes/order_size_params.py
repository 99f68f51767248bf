"""Order the size arguments of kernels by their first use in the shapes of the tensors.

TVM's fusion collects the sizes of a group in a set of addresses. So their order differs between
two runs, and with it the identity of the task and the bytes of the library:

    conv2d(x: [1, 4 * h, 4 * w, 96], w, h, y)  ->  conv2d(x: [1, 4 * h, 4 * w, 96], h, w, y)
"""

from collections.abc import Mapping, Sequence
from functools import partial

import tvm
from tvm import relax, tirx

from autopipe.compiler.dynamic_sizes.kernel_sizes import list_size_params
from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph.calls import find_callee
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.module_io import list_prim_funcs

_Order = Sequence[int]
"""The present position among the size arguments of each, in the new order."""


def order_size_params(module: tvm.IRModule) -> tvm.IRModule:
    """Order the size parameters of all PrimFuncs, and the arguments of their calls."""
    orders: dict[tvm.ir.GlobalVar, _Order] = {}
    ordered_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for name, function in list_prim_funcs(module):
        order = _find_order(function)
        if list(order) != sorted(order):
            variable = module.get_global_var(name)
            orders[variable] = order
            ordered_module.update_func(variable, _permute_params(function, order))
    return rewrite_calls(partial(_permute_arguments, orders), ordered_module) if orders else module


def _find_order(function: tirx.PrimFunc) -> _Order:
    """Order by the first use in a shape; a size in no shape comes last, by its name."""
    sizes = [size for _, size in list_size_params(function)]
    shapes = [param.ty.shape for param in function.params if isinstance(param.ty, tirx.BufferType)]
    used = [var for shape in shapes for extent in shape for var in find_nodes(extent, tvm.ir.Var)]
    places = {var: place for place, var in reversed(list(enumerate(used)))}

    def rank_size(position: int) -> tuple[int, str]:
        return places.get(sizes[position], len(used)), str(sizes[position].name)

    return sorted(range(len(sizes)), key=rank_size)


def _permute_params(function: tirx.PrimFunc, order: _Order) -> tirx.PrimFunc:
    params, sizes = list(function.params), list_size_params(function)
    for (at, _), position in zip(sizes, order, strict=True):
        params[at] = sizes[position][1]
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs)


def _permute_arguments(orders: Mapping[tvm.ir.GlobalVar, _Order], site: CallSite) -> relax.Expr:
    """Permute the sizes among the operands of a call."""
    call = site.call
    if find_callee(call) is None or call.args[0] not in orders:
        return call
    operands = list(call.args[1].fields)
    places = [at for at, field in enumerate(operands) if isinstance(field.ty, tvm.ir.PrimType)]
    sizes = [operands[at] for at in places]
    for at, position in zip(places, orders[call.args[0]], strict=True):
        operands[at] = sizes[position]
    args = [call.args[0], relax.Tuple(operands)]
    return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
