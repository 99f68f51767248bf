"""What the graph of a module is made of: by it, passes are skipped that would find nothing."""

from typing import Final

import tvm
import tvm_ffi

from autopipe.compiler.graph.calls import graph_functions

CONSTANT: Final = "constant"
"""Stands for tensors with constant values among the names of operators."""


def list_contents(module: tvm.IRModule) -> frozenset[str]:
    """Return the operators that a graph calls, such as `relax.add`, and `CONSTANT` if it has any.

    Kernels are not looked at.
    """
    found: set[str] = set()
    called: set[tvm.ir.Expr] = set()
    for _, function in graph_functions(module):
        tvm_ffi.structural_walk(
            function,
            (
                (tvm.ir.Call, lambda call: called.add(call.op)),
                (tvm.ir.GenericConst, lambda _: found.add(CONSTANT)),
                (tvm.ir.Type, lambda _: tvm_ffi.WalkResult.SKIP),
            ),
            order="pre",
        )
    return frozenset(found | {str(op.name) for op in called if isinstance(op, tvm.ir.Op)})
