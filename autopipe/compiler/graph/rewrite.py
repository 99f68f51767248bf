"""Runs a Relax mutator over the `main` of a module."""

import tvm
from tvm.relax.expr_functor import PyExprMutator


def rewrite_main(mutator: PyExprMutator, module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with `main` rewritten by a mutator, which was made with that module."""
    main = mutator.visit_expr(module["main"])
    mutator.builder_.update_func(module.get_global_var("main"), main)
    return mutator.builder_.get()
