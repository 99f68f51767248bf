"""The functions of a graph, and the calls of PrimFuncs in them.

A module has `main`, and a function for each body of a loop and each branch. Groups of `FuseOps`
are functions as well, until each becomes one PrimFunc: they have the attribute `Primitive`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeGuard

import tvm
from tvm import relax

_CALL_TIR: Final = tvm.ir.Op.get("relax.call_tir")

COMPUTED: Final = "autopipe.computed_rounds"
"""Attribute of a function that calls others in a loop of data-dependent trip count."""


def graph_functions(module: tvm.IRModule) -> list[tuple[tvm.ir.GlobalVar, relax.Function]]:
    """List the functions of a graph other than fused groups: `main`, then others by name."""
    functions = [
        (variable, function)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function) and not is_fused(function)
    ]
    return sorted(functions, key=lambda pair: (pair[0].name_hint != "main", pair[0].name_hint))


def address_call(call: relax.Call, operands: Iterable[relax.Expr]) -> tuple[int, ...]:
    """Return the addresses of the op, the attributes and the operand types of a call.

    A model shares these objects among equal calls. They hold as long as the call lives.
    """
    parts = (call.op, call.attrs, *(operand.ty for operand in operands))
    return tuple(0 if part is None else part.__chandle__() for part in parts)


def is_fused(function: relax.Function) -> bool:
    """Tell whether a function is a group of `FuseOps`."""
    return "Primitive" in (function.attrs or {})


def find_fused_function(module: tvm.IRModule, value: relax.Expr) -> relax.Function | None:
    """Return the group of `FuseOps` that a value calls, or None."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
        function = module[value.op]
        return function if isinstance(function, relax.Function) and is_fused(function) else None
    return None


def count_calls(module: tvm.IRModule) -> Counter[str]:
    """Count the calls of each PrimFunc in one run of `main`, in the order of the first calls.

    Conditional calls count once: their number is not known before the model runs. Of two branches,
    or of two ways into a loop, the one with more calls counts.
    """
    return _count_calls(module, module["main"], {})


def _count_calls(
    module: tvm.IRModule, function: relax.Function, counts_by_function: dict[str, Counter[str]]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    conditional_counts: Counter[str] = Counter()
    outside = {binding.var for block in function.body.blocks for binding in block.bindings}
    counted_callees: set[str] = set()
    for binding in list_bindings(function):
        value = binding.value
        if (name := find_callee(value)) is not None:
            counts[name] += 1
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            callee = str(value.op.name_hint)
            if binding.var not in outside and callee in counted_callees:
                continue
            counted_callees.add(callee)
            if callee not in counts_by_function:
                counts_by_function[callee] = _count_calls(
                    module, module[value.op], counts_by_function
                )
            if binding.var in outside and COMPUTED not in (function.attrs or {}):
                counts.update(counts_by_function[callee])
            else:
                conditional_counts |= counts_by_function[callee]
    counts.update(conditional_counts)
    return counts


def find_weight_arguments(module: tvm.IRModule) -> dict[str, frozenset[int]]:
    """Find the positions of arguments that are weights in all calls of a PrimFunc, by its name.

    Weights are the parameters of `main` after its inputs, and constants. A PrimFunc that other
    functions of the graph call as well has none: their arguments are not analyzed.
    """
    main = module["main"]
    count = int((main.attrs or {}).get("num_input", len(main.params)))
    weights = set(main.params[count:])
    other_functions = (body for _, body in graph_functions(module) if not body.same_as(main))
    weights_by_kernel: dict[str, frozenset[int]] = {
        name: frozenset() for body in other_functions for name in list_callees(body)
    }
    for binding in list_bindings(main):
        name = find_callee(binding.value)
        if name is not None:
            arguments = enumerate(binding.value.args[1].fields)
            weight_positions = frozenset(
                at
                for at, value in arguments
                if value in weights or isinstance(value, tvm.ir.GenericConst)
            )
            weights_by_kernel[name] = (
                weights_by_kernel.get(name, weight_positions) & weight_positions
            )
    return weights_by_kernel


def list_callees(function: relax.Function) -> list[str]:
    """List the PrimFunc of each `call_tir` of a function, in order."""
    callees = (find_callee(binding.value) for binding in list_bindings(function))
    return [name for name in callees if name is not None]


def list_function_calls(function: relax.Function) -> list[relax.Call]:
    """List the calls of other Relax functions, fused ones included."""
    values = (binding.value for binding in list_bindings(function))
    calls = (value for value in values if isinstance(value, relax.Call))
    return [call for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]


def sort_callers_first(functions: Mapping[str, relax.Function], first: str) -> list[str]:
    """List the functions that are reachable from one, each before its callees."""
    if functions.keys() == {first}:
        return [first]
    visited: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in visited or name not in functions:
            return
        for call in list_function_calls(functions[name]):
            visit(str(call.op.name_hint))
        visited[name] = None

    visit(first)
    return list(reversed(visited))


def list_bindings(function: relax.Function) -> list[relax.Binding]:
    """List the bindings of a function, in order. Those of branches come before their `If`."""
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
    if isinstance(value, relax.Call) and value.op.same_as(_CALL_TIR):
        return str(value.args[0].name_hint)
    return None


def list_result_types(call: relax.Call) -> list[tvm.ir.Type]:
    """List the types of the results of a `call_tir`."""
    (result_type,) = call.ty_args
    return list(result_type.fields) if isinstance(result_type, relax.TupleType) else [result_type]
