"""Relax ops to PrimFuncs: the one way tuning, build and the work on weights do it."""

import tvm
from tvm import relax
from tvm.relax import backend, transform


def legalize(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its ops as calls of PrimFuncs, for the target in scope."""
    return tvm.transform.Sequential(
        [
            # `LegalizeOps` leaves alone what every kind of target computes in its own way
            backend.DispatchSampling(),
            backend.DispatchSortScan(),
            transform.LegalizeOps(),
        ]
    )(module)


def unlowered(legalized: tvm.IRModule) -> list[str]:
    """Return the ops in `main` that have not become PrimFuncs, though TVM has computes for them."""
    calls = (b.value for block in legalized["main"].body.blocks for b in block.bindings)
    ops = {call.op for call in calls if isinstance(call, relax.Call)}
    names = (op.name for op in ops if isinstance(op, tvm.ir.Op) and op.has_attr("FLegalize"))
    return sorted(name.removeprefix("relax.") for name in names if "relax.call_" not in name)
