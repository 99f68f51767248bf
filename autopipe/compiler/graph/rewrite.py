"""Runs a mutator over the graph of a module."""

import tvm
from tvm.relax.expr_functor import PyExprMutator

from autopipe.compiler.graph.calls import graph_functions


def rewrite_graph(mutator: PyExprMutator, module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its graph rewritten by a mutator, which was made with that module."""
    for variable, function in graph_functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()
