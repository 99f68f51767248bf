"""Split kernels in two where a schedule packs weights: the packing, and the rest."""

import tvm
from tvm.relax import transform
from tvm.s_tir import Schedule

from autopipe.compiler.graph.weights import MARK
from autopipe.compiler.labels.kernel_nodes import relabel_packed


def split_packing(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with a kernel of its own for each packing; calls keep their labels.

    TVM's pass for this fails on PrimFuncs without blocks, such as sort. So it is given only the
    PrimFuncs that pack weights.
    """
    functions = dict(module.functions_items())
    others = {
        var: function
        for var, function in functions.items()
        if isinstance(function, tvm.tirx.PrimFunc) and not _has_packing_block(function)
    }
    rest = {var: function for var, function in functions.items() if var not in others}
    split = transform.SplitLayoutRewritePreproc()(tvm.IRModule(rest))
    split.update(tvm.IRModule(others))
    return relabel_packed(module, split)


def _has_packing_block(function: tvm.tirx.PrimFunc) -> bool:
    sch = Schedule(function, debug_mask="none", error_render_level="none")
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except RuntimeError:  # no root: a loop nest, or a call of a library
        return False
    return any(MARK in sch.get(block).annotations for block in blocks)
