"""Fold calls of constants by TVM's `FoldConstant`.

TVM's pass legalizes each call and evaluates calls of constant operands. The others are not
legalized here: `legalize` does it, once their layouts are final.
"""

import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.graph.shared_legalization import legalize_constants_only


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Replace calls with constant operands by their values.

    A graph in which every binding reads a variable has none.
    """
    bindings = (b for _, function in graph_functions(module) for b in list_bindings(function))
    if all(relax.analysis.free_vars(binding.value) for binding in bindings):
        return module
    with legalize_constants_only():
        return transform.FoldConstant()(module)
