"""Compiles the plain loops of workloads, which schedules are compared with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import tvm

from autopipe.compiler.codegen.compile_kernels import compile_kernel, export_library
from autopipe.compiler.library import linking
from autopipe.compiler.library.row_order import reorder_reductions
from autopipe.compiler.target.target import make_host_target

_PACKING: Final = "_packing"
"""What the name of a function has behind it that packs the weights of a schedule."""

_ROLLED: Final = ("-unroll-threshold-default:uint=0",)
"""Options of LLVM that leave loops as they are: unrolled, plain loops take longer to compile and
are no faster."""


class PlainFunctions(NamedTuple):
    """Compiled plain loops."""

    loops: Callable[..., object]
    """Take the arguments of the workload."""
    packing: Callable[..., object] | None
    """Takes weights as the workload has them, then the packed ones, which it writes."""


@dataclass(frozen=True, slots=True)
class PlainSource:
    """What plain loops are compiled from."""

    workload: tvm.IRModule
    packing: tvm.tirx.PrimFunc | None = None
    """Of a schedule, as `split_weights` returns it."""

    def functions(self, name: str) -> dict[str, tvm.tirx.PrimFunc]:
        """Return what is compiled, under names that begin with the one given."""
        found = {name: reorder_reductions(self.workload)["main"]}
        if self.packing is not None:
            found[name + _PACKING] = self.packing
        return found


@dataclass(frozen=True, slots=True)
class PlainKernel:
    """Where plain loops are in a library."""

    path: str
    """Of the library."""
    name: str


def compile_plain(source: PlainSource) -> PlainFunctions:
    """Compile plain loops in this process. Raises ForeignCode, and what TVM raises."""
    linking.load_libraries(source.workload)
    return _find_functions(_compile_functions(source.functions("main")), "main", source)


def link_plain(sources: Mapping[str, PlainSource], path: Path) -> None:
    """Compile the plain loops of many workloads to one library, each under its name.

    To start LLVM and the linker takes as long as a workload. Raises as `compile_plain`.
    """
    functions: dict[str, tvm.tirx.PrimFunc] = {}
    for name, source in sources.items():
        functions |= source.functions(name)
    export_library(_compile_functions(functions), path)


def open_plain(kernel: PlainKernel, source: PlainSource) -> PlainFunctions:
    """Return plain loops that `link_plain` has linked from the same source."""
    linking.load_libraries(source.workload)
    return _find_functions(_open_library(kernel.path), kernel.name, source)


def plain_target() -> tvm.target.Target:
    """Return the target of plain loops: every processor of this machine's architecture.

    With AVX-512, LLVM 22 takes wrong elements where it makes vectors of the loops of a tile
    operator.
    """
    return tvm.target.Target(
        {**make_host_target(1).export(), "opt-level": 2, "cl-opt": list(_ROLLED)}
    )


def _compile_functions(functions: Mapping[str, tvm.tirx.PrimFunc]) -> tvm.runtime.Module:
    module = tvm.IRModule(
        {name: one.with_attr("global_symbol", name) for name, one in functions.items()}
    )
    config = {"tirx.disable_assert": True}  # the arguments fit: they are made from the function
    with tvm.transform.PassContext(opt_level=3, config=config):
        return compile_kernel(module, plain_target())


def _find_functions(library: tvm.runtime.Module, name: str, source: PlainSource) -> PlainFunctions:
    packing = None if source.packing is None else library[name + _PACKING]
    return PlainFunctions(library[name], packing)


@cache
def _open_library(path: str) -> tvm.runtime.Module:
    return tvm.runtime.load_module(path)
