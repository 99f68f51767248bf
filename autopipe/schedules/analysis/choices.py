"""Loads both operands of a select before it, so that LLVM vectorizes it.

TVM makes a branch of each select with loads in its operands, as the index of the one not selected
may be out of bounds. Where both are proved in bounds, their loads are bound to variables first.

Example: the gradient of a loss, y[i, j] of [128, 512].

    y[i, j] = g[i] * w[i] if j == at[i] else 0        # before: a branch for each element, 30 us

    a, b = g[i], w[i]                                 # after: vectors, 7 us
    y[i, j] = choose(j == at[i], a * b, 0)
"""

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Bind, BufferStore, Select

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.schedules.analysis.blocks import bind_axes
from autopipe.schedules.analysis.expressions import (
    branches_of,
    count_occurrences,
    is_branch,
    remove_repeated_loads,
    replace_variables,
    to_selects,
)
from autopipe.schedules.analysis.reducer import has_variable_divisor, is_inside
from autopipe.schedules.primitives import replace_block


def can_read_both(block: SBlock) -> bool:
    """Tell whether both operands of the selects of a block may always be evaluated.

    They load within their tensors, divide no integers, and call no costly functions.
    """
    sides = _list_branch_values(block.body.value)
    if not any(map(list_loads, sides)):
        return False
    analyzer = bind_axes(block)
    calls = [call for side in sides for call in find_nodes(side, Call)]
    return (
        all(map(is_branch, calls))
        and not any(map(has_variable_divisor, sides))
        and all(is_inside(load, analyzer) for side in sides for load in list_loads(side))
    )


def has_indirect_choice(block: SBlock) -> bool:
    """Tell whether a block selects between elements that are gathered along the last axis.

    On one thread LLVM uses masked gathers, in vectors. TVM passes pointers to the body of a
    parallel loop in a structure, and LLVM no longer knows that loads and stores do not alias.
    """
    axis = block.iter_vars[-1].var
    loads = [load for side in _list_branch_values(block.body.value) for load in list_loads(side)]
    index_loads = [inner for load in loads for index in load.indices for inner in list_loads(index)]
    return any(count_occurrences(inner, axis) for inner in index_loads)


def read_both(sch: Schedule, rv: SBlockRV) -> None:
    """Bind the operands of selects to variables, and select between these; see `can_read_both`."""
    store = sch.get(rv).body
    loads = [load for side in _list_branch_values(store.value) for load in list_loads(side)]
    names = [
        (load, tirx.Var(f"{load.source.name}_read", load.ty))
        for load in remove_repeated_loads(loads)
    ]

    def name(load: TensorLoad) -> Any | None:  # noqa: ANN401 - TVM's variables
        return next((var for one, var in names if tvm_ffi.structural_equal(load, one)), None)

    value = to_selects(replace_variables(store.value, [], name), lambda _: True)
    binds = [Bind(var, load) for load, var in names]
    replace_block(sch, rv, tirx.stmt_seq(*binds, BufferStore(store.buffer, value, store.indices)))


def replace_branches(sch: Schedule, rv: SBlockRV) -> None:
    """Replace branches without loads in their values by selects, as in a unit matrix."""
    store = sch.get(rv).body
    value = to_selects(store.value, lambda call: not list_loads(call))
    replace_block(sch, rv, BufferStore(store.buffer, value, store.indices))


def _list_branch_values(value: Expr) -> list[Expr]:
    """Return the operands of all branches and selects in an expression."""
    values = [side for branch in branches_of(value) for side in branch.args[1:]]
    for choice in find_nodes(value, Select):
        values += [choice.true_value, choice.false_value]
    return values
