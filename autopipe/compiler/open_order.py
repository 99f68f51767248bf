"""Lowers a model with open sizes so that the same model gives the same bytes.

TVM keeps open sizes in a list, which functions called `shape_func` fill. It writes their stores in
the order of a table of pointers, which is another one in each process.
"""

from typing import Final

import tvm
from tvm import relax, tirx
from tvm.relax import transform

from autopipe.compiler.graph.views import RESHAPE
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.open_sizes import FOUND_SIZES
from autopipe.compiler.shared_shapes import shared_shapes


def _kept(_: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    return call


_PIPELINE: Final = tvm.transform.Sequential(
    [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps({RESHAPE: _kept}),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
)
"""TVM's pipeline `default`, but for what makes views of copies: `views` has done that, and makes it
of more of them. It would also make copies of views again."""


def is_open(module: tvm.IRModule) -> bool:
    """Tell whether a model takes open sizes, or computes some."""
    functions = {str(var.name_hint): function for var, function in module.functions_items()}
    if "main" not in functions:
        return False
    main = functions["main"]
    taken = any(isinstance(getattr(param, "ty", None), relax.ShapeType) for param in main.params)
    return taken or FOUND_SIZES in (main.attrs or {})


def given_sizes(module: tvm.IRModule) -> bool:
    """Tell whether a model takes open sizes, and all others follow from them: none is computed."""
    return is_open(module) and FOUND_SIZES not in (module["main"].attrs or {})


def lowered(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Return a model that is ready for code generation, its sizes stored in the order of places."""
    with target:
        module = shared_shapes(_PIPELINE(module))
    for name, function in prim_funcs(module):
        if name.startswith("shape_func"):
            module.update_func(module.get_global_var(name), _in_order(function))
    return module


def _in_order(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Sort the stores of a function by the place that is written; none reads what another wrote."""
    statements = list(function.body.seq) if hasattr(function.body, "seq") else [function.body]
    if not all(isinstance(statement, tirx.BufferStore) for statement in statements):
        return function
    statements.sort(key=lambda store: int(store.indices[0]))
    return function.with_body(tirx.stmt_seq(*statements))
