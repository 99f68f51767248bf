"""A model whose sizes are open, made one for certain sizes.

`main` takes the number of multiples of each size as a shape, after the inputs:

    main(x: Tensor([1, 3, 32 * height, 32 * width]), sizes: Shape([height, width]), weights...)

With 640 and 320 it becomes

    main(x: Tensor([1, 3, 640, 320]), sizes: Shape([20, 10]), weights...)
"""

from collections.abc import Mapping

import tvm
from tvm import relax, tirx
from tvm.relax import transform

from autopipe.compiler.graph.calls import graph_functions
from autopipe.config.dimension import Dimension, Sizes


def steps(dimensions: Mapping[str, Dimension], sizes: Sizes) -> dict[str, int]:
    """Return how many multiples each size has: 20 for 640 with a multiple of 32."""
    return {name: size // dimensions[name].multiple for name, size in sizes.items()}


def at(module: tvm.IRModule, counts: Mapping[str, int]) -> tvm.IRModule:
    """Return a module of operators with its open sizes bound; `counts` are as `steps` returns."""
    for variable, function in graph_functions(module):
        found = {str(var.name) for var in relax.analysis.defined_symbolic_vars(function)}
        bound = {name: count for name, count in counts.items() if name in found}
        if bound:
            module = transform.BindSymbolicVars(bound, str(variable.name_hint))(module)
    return transform.FoldConstant()(module)


def open_variables(function: tirx.PrimFunc) -> dict[str, tirx.Var]:
    """Return the open sizes of a PrimFunc by name, in the order of its parameters."""
    found: dict[str, tirx.Var] = {}
    for param in function.params:
        if isinstance(param.ty, tirx.BufferType):
            for extent in param.ty.shape:
                for variable in tirx.analysis.undefined_vars(extent):
                    found.setdefault(str(variable.name), variable)
        else:
            found.setdefault(str(param.name), param)
    return found
