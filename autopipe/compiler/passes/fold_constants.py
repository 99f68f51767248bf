"""Compute what depends on constants alone, by TVM's `FoldConstant`.

TVM's pass makes a kernel of each call and computes those whose operands are constants. The others
are not legalized here: `legalize` does it, once their layouts are final.
"""

import tvm
from tvm.relax import transform

from autopipe.compiler.graph.shared_legalization import legalize_constants_only


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with values in the place of calls whose operands are all constants."""
    with legalize_constants_only():
        return transform.FoldConstant()(module)
