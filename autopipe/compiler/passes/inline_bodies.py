"""Inline short bodies of loops and branches.

TVM's virtual machine needs microseconds to enter a function, to check its arguments, and to unpack
its results: more than a small kernel takes. A loop is a chain of functions, each of which calls the
one before it eight times. The first ones are inlined into their callers here:

    rounds(h) = body(... body(body(h)))          # before: 8 calls, 8 tuples
    rounds(h) = cell(... cell(cell(h)))          # after: cell is the kernel in the body

The kernels stay unchanged. The remaining functions do not check their arguments: their callers are
in the same module, and types were inferred through them.
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
"""Most calls of kernels in a function after inlining. So a chain of rounds stays short code, and
the virtual machine enters a function once in 64 rounds of one kernel."""


def inline_bodies(module: tvm.IRModule) -> tvm.IRModule:
    """Inline the short bodies of a module. One without bodies is returned unchanged."""
    variables = {str(variable.name_hint): variable for variable, _ in graph_functions(module)}
    functions = {str(variable.name_hint): body for variable, body in graph_functions(module)}
    if len(functions) == 1:
        return module
    for name in reversed(sort_callers_first(functions, "main")):
        functions[name] = _inline_calls(functions[name], functions, variables)
    inlined_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for name, function in functions.items():
        trusting = function if name == "main" else function.with_attr(COUNT, 0)
        inlined_module.update_func(variables[name], trusting)
    cleanup = [transform.Normalize(), transform.CanonicalizeBindings()]
    return tvm.transform.Sequential([*cleanup, transform.DeadCodeElimination(["main"])])(
        inlined_module
    )


def _inline_calls(
    function: relax.Function,
    functions: Mapping[str, relax.Function],
    variables: Mapping[str, tvm.ir.GlobalVar],
) -> relax.Function:
    """Inline the callees of a function, the shortest first, up to `MOST` kernel calls.

    A function with kernels in both branches of an `If` stays unchanged: TVM 0.27 plans memory as if
    one branch ran after the other, so that the second one would use allocations of the first one.
    """
    if not _has_one_path(function.body):
        return function
    call_counts = Counter(str(call.op.name_hint) for call in list_function_calls(function))
    sizes = {
        name: len(list_callees(functions[name]))
        for name in call_counts
        if _is_leaf(functions[name])
    }
    size, inlined_functions = len(list_callees(function)), {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        size += call_counts[name] * sizes[name]
        if size <= MOST:
            inlined_functions[variables[name]] = functions[name]
    return (
        _unify_sizes(function.inline_functions(inlined_functions))
        if inlined_functions
        else function
    )


def _unify_sizes(function: relax.Function) -> relax.Function:
    """Replace the size variables of inlined code by those of the function, by name.

    TVM renews the variables of dynamic sizes in inlined code without a mapping. Within a model a
    name refers to one size.
    """
    sizes_by_name = {
        str(size.name): size for size in relax.analysis.defined_symbolic_vars(function)
    }
    size_map = {
        size: sizes_by_name[str(size.name)] for size in relax.analysis.free_symbolic_vars(function)
    }
    if not size_map:
        return function
    return tvm_ffi.structural_map(function, (tirx.Var, lambda size: size_map.get(size, size)))


def _has_one_path(body: relax.SeqExpr) -> bool:
    """Tell whether kernels are in at most one branch of a final `If`, and nowhere after one."""
    bound = [binding.value for block in body.blocks for binding in block.bindings]
    if any(isinstance(value, relax.If) for value in bound[:-1]):
        return False
    last = bound[-1] if bound else None
    if not isinstance(last, relax.If):
        return True
    work = [branch for branch in (last.true_branch, last.false_branch) if _has_calls(branch)]
    return not work or (len(work) == 1 and _has_one_path(work[0]))


def _has_calls(body: relax.SeqExpr) -> bool:
    """Tell whether a branch has a call or another `If`."""
    bound = (binding.value for block in body.blocks for binding in block.bindings)
    return any(isinstance(value, relax.Call | relax.If) for value in bound)


def _is_straight(function: relax.Function) -> bool:
    """Tell whether a function has no condition."""
    return all(isinstance(block, relax.DataflowBlock) for block in function.body.blocks)


def _is_leaf(function: relax.Function) -> bool:
    """Tell whether a function has no condition and calls no other Relax function."""
    return _is_straight(function) and not list_function_calls(function)
