"""List the ops of a module's graph, to skip passes that would find nothing."""

from typing import Final

import tvm
import tvm_ffi

from autopipe.compiler.graph.calls import graph_functions

CONSTANT: Final = "constant"
"""Entry for constant tensors among the names of ops."""


def list_contents(module: tvm.IRModule) -> frozenset[str]:
    """List the ops that a graph calls, such as `relax.add`, and `CONSTANT` for constant tensors.

    Kernels are not visited.
    """
    contents: set[str] = set()
    callees: set[tvm.ir.Expr] = set()
    for _, function in graph_functions(module):
        tvm_ffi.structural_walk(
            function,
            (
                (tvm.ir.Call, lambda call: callees.add(call.op)),
                (tvm.ir.GenericConst, lambda _: contents.add(CONSTANT)),
            ),
            order="pre",
        )
    return frozenset(contents | {str(op.name) for op in callees if isinstance(op, tvm.ir.Op)})
