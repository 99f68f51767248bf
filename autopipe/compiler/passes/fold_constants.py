"""Fold calls of constants by TVM's `FoldConstant`.

TVM's pass legalizes each call and evaluates those whose operands are constants. The others are not
legalized here: `legalize` does it, once their layouts are final.
"""

import tvm
from tvm.relax import transform

from autopipe.compiler.graph.shared_legalization import legalize_constants_only


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Replace calls with constant operands by their values."""
    with legalize_constants_only():
        return transform.FoldConstant()(module)
