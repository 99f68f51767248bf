"""From a lowered module and a schedule for each workload to a shared library."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm.relax import transform

from autopipe.compiler import weights


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled model, not yet on disk."""

    executable: tvm.runtime.Executable
    """Its `main` takes the inputs, then the packed weights."""
    packing: tvm.IRModule
    """What is left to do on the weights: layouts that schedules asked for."""


def build(
    lowered: tvm.IRModule, scheduled: Mapping[str, tvm.IRModule], target: tvm.target.Target
) -> Built:
    """Compile the lowered module with the scheduled body of each PrimFunc.

    `scheduled` holds, by the name of a PrimFunc of the module, a module with it as `main`.
    """
    module = tvm.IRModule(dict(lowered.functions_items()))
    for name, body in scheduled.items():
        function = body["main"].without_attr("global_symbol").with_attr("tirx.is_scheduled", True)  # noqa: FBT003 - TVM's signature
        module.update_func(module.get_global_var(name), function)
    with target, tvm.transform.PassContext(opt_level=3):
        module, packing = weights.lift(transform.SplitLayoutRewritePreproc()(module))
        return Built(tvm.compile(module, target=target), packing)


def export(built: Built, path: Path) -> None:
    """Write the library; the same module gives the same bytes."""
    built.executable.export_library(str(path))
