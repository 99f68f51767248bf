"""Run a mutator over the graph of a module."""

import tvm
from tvm.relax.expr_functor import PyExprMutator

from autopipe.compiler.graph.calls import graph_functions


def rewrite_graph(mutator: PyExprMutator, module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the graph of a module by a mutator, which was constructed with that module."""
    for variable, function in graph_functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()
