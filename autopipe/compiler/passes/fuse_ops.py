"""Fuse ops to groups of one kernel each, and keep the op information.

Fusion renames variables. So ops and labels are read by name before it, and are matched with calls
by their computation.
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
    """Rename variables uniquely; `state` keeps the op and the label of each."""
    module, state.ops, state.labels = op_info.name_ops(module)
    return module


def match_ops(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Find the op of each call of a legalized kernel; the module stays unchanged.

    Raises ModelError for ops that have no kernel.
    """
    if stuck := list_unlegalized_ops(module):
        raise ModelError(f"TVM has no compute for {', '.join(stuck)} as this model uses it")
    state.calls = op_info.collect_call_infos(module, state.ops)
    return module


def fuse_ops(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Group the ops of a module to functions, each of which becomes one kernel."""
    labels = CallLabels(module, state.labels)
    fused_module = fuse_mergeable(
        module, lambda m: fuse_calls(m, state.ops, state.calls, state.scope, state.pays)
    )
    state.infos = op_info.describe_functions(fused_module, state.calls)
    for name, info in state.infos.items():
        _LOG.info("kernel %s: %s", name, ", ".join(info.names))
    return labels.apply(fused_module)


def describe_kernels(module: tvm.IRModule, state: LowerState) -> tvm.IRModule:
    """Attach the op information of each kernel as an attribute."""
    return op_info.attach_op_infos(module, state.infos)
