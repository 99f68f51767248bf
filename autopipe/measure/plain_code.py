"""Compile the unscheduled loops of workloads, which schedules are compared with."""

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
"""Suffix of the name of a function that packs the weights of a schedule."""

_ROLLED: Final = ("-unroll-threshold-default:uint=0",)
"""Options of LLVM that disable unrolling: unrolled, these loops take longer to compile and are no
faster."""


class PlainFunctions(NamedTuple):
    """The compiled functions of an unscheduled workload."""

    loops: Callable[..., object]
    """The workload, with its own arguments."""
    packing: Callable[..., object] | None
    """Takes weights in the layout of the workload, then the packed weights, which it writes."""


@dataclass(frozen=True, slots=True)
class PlainSource:
    """The source of unscheduled loops."""

    workload: tvm.IRModule
    packing: tvm.tirx.PrimFunc | None = None
    """The packing of a schedule's weights, from `split_weights`."""

    def functions(self, name: str) -> dict[str, tvm.tirx.PrimFunc]:
        """Return the functions to compile, under names that begin with `name`."""
        functions = {name: reorder_reductions(self.workload)["main"]}
        if self.packing is not None:
            functions[name + _PACKING] = self.packing
        return functions


@dataclass(frozen=True, slots=True)
class PlainKernel:
    """The location of unscheduled loops in a library."""

    path: str
    """The path of the library."""
    name: str
    counts: tuple[tuple[int, int], ...] = ()
    """Positions and values of the size arguments of loops of dynamic shapes, where these stand for
    a workload of static shapes."""


def compile_plain(source: PlainSource) -> PlainFunctions:
    """Compile unscheduled loops in this process. Raises ForeignCode, and errors of TVM."""
    linking.load_libraries(source.workload)
    return _find_functions(_compile_functions(source.functions("main")), "main", source)


def link_plain(sources: Mapping[str, PlainSource], path: Path) -> None:
    """Compile the unscheduled loops of many workloads to one library, each under its name.

    Starting LLVM and the linker takes as long as a workload. Raises as `compile_plain`.
    """
    functions: dict[str, tvm.tirx.PrimFunc] = {}
    for name, source in sources.items():
        functions |= source.functions(name)
    export_library(_compile_functions(functions), path)


def open_plain(kernel: PlainKernel, source: PlainSource) -> PlainFunctions:
    """Load unscheduled loops that `link_plain` has linked from the same source."""
    linking.load_libraries(source.workload)
    functions = _find_functions(open_library(kernel.path), kernel.name, source)
    return functions._replace(loops=_fix_sizes(functions.loops, kernel.counts))


def plain_target() -> tvm.target.Target:
    """Return the target of unscheduled loops: the baseline of this machine's architecture.

    With AVX-512, LLVM 22 selects wrong elements where it vectorizes the loops of a tile operator.
    """
    return tvm.target.Target(
        {**make_host_target(1).export(), "opt-level": 2, "cl-opt": list(_ROLLED)}
    )


def _compile_functions(functions: Mapping[str, tvm.tirx.PrimFunc]) -> tvm.runtime.Module:
    module = tvm.IRModule(
        {name: one.with_attr("global_symbol", name) for name, one in functions.items()}
    )
    config = {"tirx.disable_assert": True}  # the arguments fit: they are created from the function
    with tvm.transform.PassContext(opt_level=3, config=config):
        return compile_kernel(module, plain_target())


def _find_functions(library: tvm.runtime.Module, name: str, source: PlainSource) -> PlainFunctions:
    packing = None if source.packing is None else library[name + _PACKING]
    return PlainFunctions(library[name], packing)


def _fix_sizes(
    loops: Callable[..., object], counts: tuple[tuple[int, int], ...]
) -> Callable[..., object]:
    """Bind the sizes among the arguments of loops, so that they take tensors alone."""
    if not counts:
        return loops

    def call(*tensors: object) -> object:
        arguments = list(tensors)
        for at, count in counts:
            arguments.insert(at, count)
        return loops(*arguments)

    return call


@cache
def open_library(path: str) -> tvm.runtime.Module:
    """Load a library; the process keeps it."""
    return tvm.runtime.load_module(path)
