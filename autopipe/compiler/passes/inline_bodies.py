"""Puts short bodies of loops and branches where they are called.

TVM's virtual machine needs microseconds to enter a function, to check what it is given, and to take
apart what it returns: more than a small kernel takes. A loop is a chain of functions, each of which
calls the one before it eight times. The first ones are put into their callers here:

    rounds(h) = body(... body(body(h)))          # before: 8 calls, 8 tuples
    rounds(h) = cell(... cell(cell(h)))          # after: cell is the kernel in the body

The kernels stay what they are. A function that is left is not given what it would have to check:
its callers are in the same module, and types were inferred through it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import transform

from autopipe.compiler.graph.calls import (
    graph_functions,
    list_callees,
    list_function_calls,
    sort_callers_first,
)
from autopipe.compiler.graph.hoist import COUNT

MOST: Final = 128
"""Calls of kernels in a function that others were put into. So a chain of rounds stays short code,
and the machine enters a function once in 64 rounds of one kernel."""


def inline_bodies(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with short bodies inlined. One without bodies is returned as it is."""
    variables = {str(variable.name_hint): variable for variable, _ in graph_functions(module)}
    functions = {str(variable.name_hint): body for variable, body in graph_functions(module)}
    if len(functions) == 1:
        return module
    for name in reversed(sort_callers_first(functions, "main")):
        functions[name] = _inline_calls(functions[name], functions, variables)
    changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for name, function in functions.items():
        trusting = function if name == "main" else function.with_attr(COUNT, 0)
        changed.update_func(variables[name], trusting)
    cleanup = [transform.Normalize(), transform.CanonicalizeBindings()]
    return tvm.transform.Sequential([*cleanup, transform.DeadCodeElimination(["main"])])(changed)


def _inline_calls(
    function: relax.Function,
    functions: Mapping[str, relax.Function],
    variables: Mapping[str, tvm.ir.GlobalVar],
) -> relax.Function:
    """Return a function with those that it calls, the shortest first, as long as there is room.

    One with kernels in both branches of a condition stays as it is: TVM 0.27 plans memory as if one
    branch ran after the other, so that the second one would use what only the first one allocates.
    """
    if not _has_one_path(function.body):
        return function
    called = Counter(str(call.op.name_hint) for call in list_function_calls(function))
    sizes = {
        name: len(list_callees(functions[name])) for name in called if _is_leaf(functions[name])
    }
    size, taken = len(list_callees(function)), {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        size += called[name] * sizes[name]
        if size <= MOST:
            taken[variables[name]] = functions[name]
    return _unify_sizes(function.inline_functions(taken)) if taken else function


def _unify_sizes(function: relax.Function) -> relax.Function:
    """Return a function in which sizes of what was inlined are its own, by their names.

    TVM copies what it inlines with new variables for open sizes, and does not say what they are. A
    name means one size wherever it stands in a model.
    """
    own = {str(size.name): size for size in relax.analysis.defined_symbolic_vars(function)}
    copied = {size: own[str(size.name)] for size in relax.analysis.free_symbolic_vars(function)}
    if not copied:
        return function
    return tvm_ffi.structural_map(function, (tirx.Var, lambda size: copied.get(size, size)))


def _has_one_path(body: relax.SeqExpr) -> bool:
    """Tell whether a condition only decides if what is left is done, or nothing."""
    bound = [binding.value for block in body.blocks for binding in block.bindings]
    if any(isinstance(value, relax.If) for value in bound[:-1]):
        return False
    last = bound[-1] if bound else None
    if not isinstance(last, relax.If):
        return True
    work = [branch for branch in (last.true_branch, last.false_branch) if _has_calls(branch)]
    return not work or (len(work) == 1 and _has_one_path(work[0]))


def _has_calls(body: relax.SeqExpr) -> bool:
    """Tell whether a branch calls anything, or chooses again."""
    bound = (binding.value for block in body.blocks for binding in block.bindings)
    return any(isinstance(value, relax.Call | relax.If) for value in bound)


def _is_straight(function: relax.Function) -> bool:
    """Tell whether a function only computes, without a condition."""
    return all(isinstance(block, relax.DataflowBlock) for block in function.body.blocks)


def _is_leaf(function: relax.Function) -> bool:
    """Tell whether a function only computes, and calls no other one of the graph."""
    return _is_straight(function) and not list_function_calls(function)
