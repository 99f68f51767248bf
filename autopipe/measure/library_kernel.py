"""Checks a schedule by the kernel of it in a linked library: what is checked is what is shipped."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autopipe.artifacts.model_nodes import PACKED
from autopipe.compiler.library import linking
from autopipe.compiler.loops.element_copies import ElementCopies
from autopipe.measure.build import SplitKernel, split_weights
from autopipe.measure.cases import Instance
from autopipe.measure.check import (
    AROUND_SCHEDULE,
    PlainLoops,
    WrongAnswer,
    call_kernel,
    make_outside_error,
)
from autopipe.measure.plain_code import PlainKernel
from autopipe.measure.surrounded import Surrounded


@dataclass(frozen=True, slots=True)
class LibraryKernel:
    """A kernel of a linked library."""

    path: str
    """Of the library."""
    name: str
    """Of the kernel, before weights were laid out."""


def check_kernel(
    workload: tvm.IRModule,
    scheduled: tvm.IRModule,
    kernel: LibraryKernel,
    target: tvm.target.Target,
    plain: PlainKernel | None = None,
) -> bool:
    """Compare a kernel with the plain loops of its workload, on all inputs of a check.

    Weights are packed as the schedule says, since the kernel takes them so. Returns False if the
    library has no kernel of that name: a copy has become a view. Raises as `check.checked`, which
    says what `plain` is.
    """
    library, split = _open_library(kernel.path), split_weights(scheduled)
    name = kernel.name if split.packing is None else kernel.name + PACKED
    if not library.implements_function(name, query_imports=True):
        return False
    function = library.get_function(name, query_imports=True)
    linking.load_libraries(scheduled)
    loops = PlainLoops(workload, target, split.compiled_packing, plain)

    def call(instance: Instance, inputs: list[np.ndarray]) -> list[np.ndarray]:
        packed = _pack_weights(loops, split, instance, inputs)
        arguments = [packed.get(at, array) for at, array in enumerate(inputs)]
        mine = Surrounded(arguments, AROUND_SCHEDULE)
        found = call_kernel(function, mine, instance.counts)
        if not mine.intact():
            raise make_outside_error(instance.case)
        if any(found[at].tobytes() != array.tobytes() for at, array in packed.items()):
            case = instance.case
            raise WrongAnswer(f"writes to its packed weights on {case} inputs", case)
        return [inputs[at] if at in packed else array for at, array in enumerate(found)]

    loops.compare(call)
    return True


@cache
def _open_library(path: str) -> tvm.runtime.Module:
    return tvm.runtime.load_module(path)


def _pack_weights(
    loops: PlainLoops, split: SplitKernel, instance: Instance, inputs: list[np.ndarray]
) -> dict[int, np.ndarray]:
    """Return the packed weights among the arguments of a kernel, by position."""
    if split.packing is None:
        return {}
    given = [inputs[at] for at in split.positions]
    if copies := ElementCopies.of(split.packing):
        try:
            copied = copies.apply(given)
        except IndexError as error:
            case = instance.case
            raise WrongAnswer(f"packs weights wrongly on {case} inputs: {error}", case) from error
        return dict(zip(split.positions, copied, strict=True))
    assert loops.packing is not None  # noqa: S101 - compiled, as it does more than copy
    infos = ArgInfo.from_prim_func(split.packing)[len(given) :]
    empty = [np.empty([int(n) for n in info.shape], np.dtype(str(info.dtype))) for info in infos]
    arguments = Surrounded([*given, *empty], AROUND_SCHEDULE)
    found = call_kernel(loops.packing, arguments, ())[len(given) :]
    if not arguments.intact():
        raise make_outside_error(instance.case)
    return dict(zip(split.positions, found, strict=True))
