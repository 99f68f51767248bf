"""Store dynamic sizes in the order of their places, so that the same model gives the same bytes.

TVM keeps dynamic sizes in a list, which functions called `shape_func` fill. It writes their stores
in the order of a table of pointers, which differs from process to process.
"""

import tvm
from tvm import tirx

from autopipe.compiler.module_io import list_prim_funcs


def order_size_stores(module: tvm.IRModule) -> tvm.IRModule:
    """Sort the stores of each `shape_func` of a module by their index."""
    for name, function in list_prim_funcs(module):
        if name.startswith("shape_func"):
            module.update_func(module.get_global_var(name), _sort_stores(function))
    return module


def _sort_stores(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Sort the stores of a function by their index; none reads a place that another wrote."""
    statements = list(function.body.seq) if hasattr(function.body, "seq") else [function.body]
    if not all(isinstance(statement, tirx.BufferStore) for statement in statements):
        return function
    statements.sort(key=lambda store: int(store.indices[0]))
    return function.with_body(tirx.stmt_seq(*statements))
