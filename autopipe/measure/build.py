"""Compiles a candidate in this process, ready to be called."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from autopipe.compiler import elementary


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled candidate."""

    library: Any
    """TVM's runtime module; holds `main`."""
    module: tvm.IRModule
    """What was compiled; its `main` says which arguments it wants."""


def build(module: tvm.IRModule, target: tvm.target.Target) -> Kernel:
    """Compile the scheduled `main` of a module for this machine.

    Weights are taken in the layout the schedule asks for, as in the built model, where they are
    repacked at compile time. Checks of the arguments are left out: they are not part of the
    kernel, and compiling them takes an eighth of the time.
    """
    # Without the tensor rewrite the function keeps its parameters, only their shapes change.
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    config = {"tirx.disable_assert": True}
    with tvm.transform.PassContext(opt_level=3, config=config):
        library = tvm.tirx.build(elementary.expand(module), target)
    _ = library["main"]  # machine code is made on first use
    return Kernel(library, module)
