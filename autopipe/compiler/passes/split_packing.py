"""Split kernels with packed weights into the packing and the rest."""

import tvm
from tvm.relax import transform
from tvm.s_tir import Schedule

from autopipe.compiler.graph.weights import MARK
from autopipe.compiler.labels.kernel_nodes import relabel_packed


def split_packing(module: tvm.IRModule) -> tvm.IRModule:
    """Split the packing of weights off to separate kernels; calls keep their labels.

    TVM's pass for this fails on PrimFuncs without blocks, such as sort. So it is applied only to
    the PrimFuncs that pack weights.
    """
    functions = dict(module.functions_items())
    other_kernels = {
        var: function
        for var, function in functions.items()
        if isinstance(function, tvm.tirx.PrimFunc) and not _has_packing_block(function)
    }
    remaining_functions = {
        var: function for var, function in functions.items() if var not in other_kernels
    }
    split_module = transform.SplitLayoutRewritePreproc()(tvm.IRModule(remaining_functions))
    split_module.update(tvm.IRModule(other_kernels))
    return relabel_packed(module, split_module)


def _has_packing_block(function: tvm.tirx.PrimFunc) -> bool:
    sch = Schedule(function, debug_mask="none", error_render_level="none")
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except RuntimeError:  # no root: a loop nest, or a call of a library
        return False
    return any(MARK in sch.get(block).annotations for block in blocks)
