"""Check a schedule by its kernel in the linked library of the package."""

from dataclasses import dataclass

import numpy as np
import tvm

from autopipe.artifacts.model_nodes import PACKED
from autopipe.compiler.library import linking
from autopipe.measure.build import SplitKernel, split_weights
from autopipe.measure.cases import Instance
from autopipe.measure.check import (
    AROUND_SCHEDULE,
    PlainLoops,
    WrongAnswer,
    call_kernel,
    has_same_bytes,
    make_outside_error,
)
from autopipe.measure.plain_code import PlainKernel, open_library
from autopipe.measure.surrounded import Surrounded
from autopipe.measure.tensors import list_ports


@dataclass(frozen=True, slots=True)
class LibraryKernel:
    """A kernel of a linked library."""

    path: str
    """The path of the library."""
    name: str
    """The name of the kernel, without the suffix of packed weights."""


def check_kernel(
    workload: tvm.IRModule,
    scheduled_module: tvm.IRModule,
    kernel: LibraryKernel,
    target: tvm.target.Target,
    plain: PlainKernel | None = None,
) -> bool:
    """Compare a kernel with the unscheduled loops of its workload, on all inputs of a check.

    Weights are packed by the schedule's packing, as the kernel expects. Returns False if the
    library has no kernel of that name: a copy has become a view. Raises as `check.checked`, which
    describes `plain`.
    """
    library, split = open_library(kernel.path), split_weights(scheduled_module)
    name = kernel.name if split.packing is None else kernel.name + PACKED
    if not library.implements_function(name, query_imports=True):
        return False
    function = library.get_function(name, query_imports=True)
    linking.load_libraries(scheduled_module)
    loops = PlainLoops(workload, target, split.compiled_packing, plain)

    def call(instance: Instance, inputs: list[np.ndarray]) -> list[np.ndarray]:
        packed_weights = _pack_weights(loops, split, instance, inputs)
        arguments = [packed_weights.get(at, array) for at, array in enumerate(inputs)]
        mine = Surrounded(arguments, AROUND_SCHEDULE)
        results = call_kernel(function, mine, instance.counts)
        if not mine.intact():
            raise make_outside_error(instance.case)
        if not all(has_same_bytes(results[at], array) for at, array in packed_weights.items()):
            case = instance.case
            raise WrongAnswer(f"writes to its packed weights on {case} inputs", case)
        return [inputs[at] if at in packed_weights else array for at, array in enumerate(results)]

    loops.compare(call)
    return True


def _pack_weights(
    loops: PlainLoops, split: SplitKernel, instance: Instance, inputs: list[np.ndarray]
) -> dict[int, np.ndarray]:
    """Pack the weights among the arguments of a kernel; return them by position."""
    if split.packing is None:
        return {}
    weights = [inputs[at] for at in split.positions]
    if split.copies is not None:
        try:
            packed_arrays = split.copies.apply(weights)
        except IndexError as error:
            case = instance.case
            raise WrongAnswer(f"packs weights wrongly on {case} inputs: {error}", case) from error
        return dict(zip(split.positions, packed_arrays, strict=True))
    assert loops.packing is not None  # noqa: S101 - compiled, as it does more than copy
    empty = [np.empty(*port) for port in list_ports(split.packing)[len(weights) :]]
    arguments = Surrounded([*weights, *empty], AROUND_SCHEDULE)
    packed_arrays = call_kernel(loops.packing, arguments, ())[len(weights) :]
    if not arguments.intact():
        raise make_outside_error(instance.case)
    return dict(zip(split.positions, packed_arrays, strict=True))
