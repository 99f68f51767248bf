"""The functions of a graph, and the calls of PrimFuncs in them.

A module has `main`, and a function for each body of a loop and each branch. What `FuseOps` makes
are functions as well, until each becomes one PrimFunc: they are `Primitive`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeGuard

import tvm
from tvm import relax

COMPUTED: Final = "autopipe.computed_rounds"
"""Attribute of a function that repeats what it calls in a loop whose rounds are computed."""


def graph_functions(module: tvm.IRModule) -> list[tuple[tvm.ir.GlobalVar, relax.Function]]:
    """Return the functions of a graph that are not fused ones: `main`, then others by name."""
    found = [
        (variable, function)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function) and not is_fused(function)
    ]
    return sorted(found, key=lambda pair: (pair[0].name_hint != "main", pair[0].name_hint))


def is_fused(function: relax.Function) -> bool:
    """Tell whether a function is one that `FuseOps` made."""
    return "Primitive" in (function.attrs or {})


def find_fused_function(module: tvm.IRModule, value: relax.Expr) -> relax.Function | None:
    """Return the function that a value calls, if it is one that `FuseOps` made."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
        function = module[value.op]
        return function if isinstance(function, relax.Function) and is_fused(function) else None
    return None


def count_calls(module: tvm.IRModule) -> Counter[str]:
    """Return how often one run of `main` calls each PrimFunc, in the order of the first calls.

    What a condition decides counts once: how often is not known before the model runs. Of two
    branches, or of two ways into a loop, the one with more calls counts.
    """
    return _count_calls(module, module["main"], {})


def _count_calls(
    module: tvm.IRModule, function: relax.Function, known: dict[str, Counter[str]]
) -> Counter[str]:
    found: Counter[str] = Counter()
    maybe: Counter[str] = Counter()
    outside = {binding.var for block in function.body.blocks for binding in block.bindings}
    once: set[str] = set()
    for binding in list_bindings(function):
        value = binding.value
        if (name := find_callee(value)) is not None:
            found[name] += 1
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            called = str(value.op.name_hint)
            if binding.var not in outside and called in once:
                continue
            once.add(called)
            if called not in known:
                known[called] = _count_calls(module, module[value.op], known)
            if binding.var in outside and COMPUTED not in (function.attrs or {}):
                found.update(known[called])
            else:
                maybe |= known[called]
    found.update(maybe)
    return found


def find_weight_arguments(module: tvm.IRModule) -> dict[str, frozenset[int]]:
    """Return which arguments are weights in all calls of a PrimFunc, by its name.

    Weights are the parameters of `main` behind its inputs, and constants. A PrimFunc that other
    functions of the graph call as well has none: what they are given is not looked at.
    """
    main = module["main"]
    count = int((main.attrs or {}).get("num_input", len(main.params)))
    weights = set(main.params[count:])
    others = (body for _, body in graph_functions(module) if not body.same_as(main))
    found: dict[str, frozenset[int]] = {
        name: frozenset() for body in others for name in list_callees(body)
    }
    for binding in list_bindings(main):
        name = find_callee(binding.value)
        if name is not None:
            given = enumerate(binding.value.args[1].fields)
            own = frozenset(
                at
                for at, value in given
                if value in weights or isinstance(value, tvm.ir.GenericConst)
            )
            found[name] = found.get(name, own) & own
    return found


def list_callees(function: relax.Function) -> list[str]:
    """Return the PrimFunc of each `call_tir` of a function, in order."""
    called = (find_callee(binding.value) for binding in list_bindings(function))
    return [name for name in called if name is not None]


def list_function_calls(function: relax.Function) -> list[relax.Call]:
    """Return the calls of other functions of the graph, and of fused ones."""
    values = (binding.value for binding in list_bindings(function))
    calls = (value for value in values if isinstance(value, relax.Call))
    return [call for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]


def sort_callers_first(functions: Mapping[str, relax.Function], first: str) -> list[str]:
    """Return the functions that are reached from one, each before those that it calls."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found or name not in functions:
            return
        for call in list_function_calls(functions[name]):
            visit(str(call.op.name_hint))
        found[name] = None

    visit(first)
    return list(reversed(found))


def list_bindings(function: relax.Function) -> list[relax.Binding]:
    """Return the bindings of a function, in order. Those of branches come before their `If`."""
    return list(_walk_bindings(function.body))


def _walk_bindings(body: relax.SeqExpr) -> Iterator[relax.Binding]:
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                yield from _walk_bindings(binding.value.true_branch)
                yield from _walk_bindings(binding.value.false_branch)
            yield binding


def is_kernel_call(value: relax.Expr) -> TypeGuard[relax.Call]:
    """Tell whether a value is a `call_tir`: a call of a PrimFunc with a tuple of arguments."""
    return find_callee(value) is not None


def find_callee(value: relax.Expr) -> str | None:
    """Return the name of the PrimFunc that a `call_tir` calls; None for any other value."""
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir":
        return str(value.args[0].name_hint)
    return None
