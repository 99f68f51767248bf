"""Fuse ops to groups of one kernel each, and keep what is known of each op.

Fusion names variables anew. So ops and labels are read by name before it, and are found again by
what a call computes.
"""

import logging
from typing import Final

import tvm

from autopipe.compiler.fusion.keep_apart import fuse_mergeable
from autopipe.compiler.fusion.scope import fuse_calls
from autopipe.compiler.labels import op_info
from autopipe.compiler.labels.call_labels import CallLabels
from autopipe.compiler.pass_state import LowerState
from autopipe.compiler.passes.legalize import list_unlegalized_ops
from autopipe.errors import ModelError

_LOG: Final = logging.getLogger(__name__)


def name_ops(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Give each variable a unique name; `state` keeps the op and the label of each."""
    module, state.ops, state.labels = op_info.name_ops(module)
    return module


def match_ops(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Find the op that each call of a legalized kernel computes; the module stays as it is.

    Raises ModelError for ops that have no kernel.
    """
    if stuck := list_unlegalized_ops(module):
        raise ModelError(f"TVM has no compute for {', '.join(stuck)} as this model uses it")
    state.calls = op_info.collect_call_infos(module, state.ops)
    return module


def fuse_ops(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Return the module with a function for each group of ops that becomes one kernel."""
    labels = CallLabels(module, state.labels)
    fused = fuse_mergeable(
        module, lambda given: fuse_calls(given, state.ops, state.calls, state.scope, state.pays)
    )
    state.infos = op_info.describe_functions(fused, state.calls)
    for name, info in state.infos.items():
        _LOG.info("kernel %s: %s", name, ", ".join(info.names))
    return labels.apply(fused)


def describe_kernels(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Return the module with the ops of each kernel as an attribute of it."""
    return op_info.attach_op_infos(module, state.infos)
