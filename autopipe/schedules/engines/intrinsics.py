"""Registers the tensor intrinsics that a design space may name, and only those.

A TuneContext imports `tvm.s_tir.tensor_intrin`, which parses the intrinsics of every device TVM
knows: 10 to 30 s of CPU time, nearly all of it for CUDA. Design spaces for CPUs only use those of
their own kind, so an empty package takes its place, with just the module of the target's kind.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from autopipe.compiler.call_stack import unread

_PACKAGE = "tvm.s_tir.tensor_intrin"


def register_cpu_intrinsics(machine: str) -> None:
    """Register the intrinsics of the CPUs of a kind of machine, such as `x86_64`.

    To be called before the first TuneContext is made.
    """
    if _PACKAGE not in sys.modules:
        import tvm.s_tir

        package = ModuleType(_PACKAGE)
        package.__path__ = [str(Path(str(tvm.s_tir.__file__)).with_name("tensor_intrin"))]
        sys.modules[_PACKAGE] = package
    with unread():
        import_module(f"{_PACKAGE}.{'arm_cpu' if machine == 'aarch64' else 'x86'}")
