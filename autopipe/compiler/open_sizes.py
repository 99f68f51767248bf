"""A model whose sizes are open, made one for certain sizes.

`main` takes the number of multiples of each size as a shape, after the inputs:

    main(x: Tensor([1, 3, 32 * height, 32 * width]), sizes: Shape([height, width]), weights...)

With 640 and 320 it becomes

    main(x: Tensor([1, 3, 640, 320]), sizes: Shape([20, 10]), weights...)

The same is done to a PrimFunc, whose parameters have such shapes.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import tvm
from tvm import relax, tirx
from tvm.relax import transform
from tvm_ffi import StructuralMutator, structural_mutate

from autopipe.compiler.graph.calls import graph_functions
from autopipe.compiler.module_io import prim_funcs
from autopipe.config.dimension import Dimension, Sizes

LIKELY: Final = "autopipe.likely"
"""Attribute of a PrimFunc with open sizes: how many multiples each probably has."""

LARGEST: Final = "autopipe.largest"
"""The same for the most that each can have."""

Counts = Mapping[str, int]
"""How many multiples each open size has, by its name."""


def steps(dimensions: Mapping[str, Dimension], sizes: Sizes) -> dict[str, int]:
    """Return how many multiples each size has: 20 for 640 with a multiple of 32."""
    return {name: size // dimensions[name].multiple for name, size in sizes.items()}


def at(module: tvm.IRModule, counts: Counts) -> tvm.IRModule:
    """Return a module of operators with its open sizes bound."""
    for variable, function in graph_functions(module):
        found = {str(var.name) for var in relax.analysis.defined_symbolic_vars(function)}
        bound = {name: count for name, count in counts.items() if name in found}
        if bound:
            module = transform.BindSymbolicVars(bound, str(variable.name_hint))(module)
    return transform.FoldConstant()(module)


def noted(module: tvm.IRModule, likely: Counts, largest: Counts) -> tvm.IRModule:
    """Return a lowered module whose PrimFuncs with open sizes say which are likely."""
    changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for name, function in prim_funcs(module):
        found = [str(variable.name) for variable in open_variables(function)]
        if found and all(size in likely for size in found):
            attributes = {
                LIKELY: {size: likely[size] for size in found},
                LARGEST: {size: largest[size] for size in found},
            }
            changed.update_func(module.get_global_var(name), function.with_attrs(attributes))
    return changed


def open_variables(function: tirx.PrimFunc) -> list[tirx.Var]:
    """Return the open sizes of a PrimFunc, in the order of its parameters."""
    found: list[tirx.Var] = []
    for param in function.params:
        if not isinstance(param.ty, tirx.BufferType):
            _add(found, [param])
            continue
        for extent in param.ty.shape:
            if not isinstance(extent, tirx.IntImm):
                _add(found, tirx.analysis.undefined_vars(extent))
    return found


def _add(found: list[tirx.Var], variables: Iterator[tirx.Var] | list[tirx.Var]) -> None:
    for variable in variables:
        if not any(variable.same_as(other) for other in found):
            found.append(variable)


def counts_of(function: tirx.PrimFunc, attribute: str) -> dict[str, int] | None:
    """Return what `noted` has written into a PrimFunc; None if its sizes are not open."""
    said = (function.attrs or {}).get(attribute)
    return None if said is None else {str(name): int(count) for name, count in said.items()}


def bound(module: tvm.IRModule, counts: Counts) -> tvm.IRModule:
    """Return a module whose `main` is a PrimFunc with its open sizes bound."""
    function = module["main"]
    variables = open_variables(function)

    def value(var: tvm.ir.Var, mutator: StructuralMutator) -> tvm.ir.Expr:
        if any(var.same_as(other) for other in variables):
            return tirx.IntImm(var.ty.dtype, counts[str(var.name)])
        return mutator.default_mutate(var)

    for attribute in (LIKELY, LARGEST):
        function = function.without_attr(attribute)
    return tvm.IRModule({"main": structural_mutate(function, [(tvm.ir.Var, value)])})


def likely_instance(module: tvm.IRModule) -> tvm.IRModule | None:
    """Return a module whose `main` has open sizes with these as they probably are; else None."""
    counts = counts_of(module["main"], LIKELY)
    return None if counts is None else bound(module, counts)
