"""Order the computation of data-dependent sizes before their uses.

TVM's fusion orders bindings by the tensors that they read. A size is no tensor:

    counted = call_tir(count, x)                   counted = call_tir(count, x)
    y = call_tir(fill, x): Tensor([n])      ->     match_cast(to_shape(counted), Shape([n]))
    match_cast(to_shape(counted), Shape([n]))      y = call_tir(fill, x): Tensor([n])

On the left, memory for `y` would be allocated before `n` is known.
"""

from collections.abc import Iterator

import tvm
from tvm import relax

from autopipe.compiler.dynamic_sizes.kernel_sizes import FOUND_SIZES
from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph.calls import graph_functions


def compute_sizes_first(module: tvm.IRModule) -> tvm.IRModule:
    """Sort bindings so that each data-dependent size is defined before its uses.

    All other bindings stay in their order.
    """
    sorted_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        if FOUND_SIZES not in (function.attrs or {}):
            continue
        blocks = [_sort_bindings(block) for block in function.body.blocks]
        body = relax.SeqExpr(blocks, function.body.body)
        sorted_module.update_func(
            variable,
            relax.Function(
                function.params, body, function.ret_ty, function.is_pure, function.attrs,
                function.span,
            ),
        )  # fmt: skip
    return sorted_module


def _sort_bindings(block: relax.BindingBlock) -> relax.BindingBlock:
    bindings = list(block.bindings)
    makers: dict[tvm.ir.Var, int] = {}
    for place, binding in enumerate(bindings):
        for var in _list_definitions(binding):
            makers.setdefault(var, place)
    order: list[int] = []
    visited: set[int] = set()

    def put(place: int) -> None:
        visited.add(place)
        for var in find_nodes(bindings[place].value, tvm.ir.Var):
            if (maker := makers.get(var)) is not None and maker not in visited:
                put(maker)
        order.append(place)

    for place in range(len(bindings)):
        if place not in visited:
            put(place)
    if order == sorted(order):
        return block
    return type(block)([bindings[place] for place in order], block.span)


def _list_definitions(binding: relax.Binding) -> Iterator[tvm.ir.Var]:
    """Yield the variables that a binding defines: a tensor, and sizes."""
    yield binding.var
    if isinstance(binding, relax.MatchCast):
        yield from find_nodes(binding.ty, tvm.ir.Var)
