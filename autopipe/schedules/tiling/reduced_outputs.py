"""Recognizes reductions over any axes, and collects the sizes that their cost depends on."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV

from autopipe.compiler.loops.count_operations import bound_steps, count_arithmetic
from autopipe.schedules.analysis.blocks import (
    element_bits,
    extents_of,
    is_copy,
    is_spatial,
    is_static,
    is_whole,
)
from autopipe.schedules.analysis.boundaries import find_axis_stride, find_stride
from autopipe.schedules.analysis.expressions import flat_index, replace_variables
from autopipe.schedules.analysis.joining import find_join
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.analysis.rows import count_iterations
from autopipe.schedules.analysis.simple_indices import to_simple_indices
from autopipe.schedules.analysis.single_reduction import SingleReduction
from autopipe.schedules.primitives import inline_blocks
from autopipe.schedules.tiling.strided import find_row_strides

MOST_WRITTEN: Final = 64
"""Most steps of an output that are written out."""

_MOST_BRANCHES: Final = 9
"""Most where several results ask whether their operands may be read: TVM takes 48 s for 16."""

_BRANCH: Final = "if_then_else"


@dataclass(frozen=True)
class ReducedOutputs(SingleReduction):
    """A reduction of a function, as the knobs depend on it.

    It inlines blocks that only copy an operand, or compute elements that are read once.
    """

    steps: int
    """Most steps of an output."""
    constant: bool
    """Whether all outputs have that many steps."""
    joint: tuple[int, ...]
    """Axes along which outputs have equally many steps."""
    stride: int | None
    """Largest stride of an operand, in elements, between neighbouring outputs along the last axis;
    None where it is not constant."""
    work: int
    """Loads and operations of a step."""
    bits: int
    """Size of the largest result, in bits."""
    joint_steps: int
    """Last steps that may be in vectors: results can be joined, and neighbours lie in memory one
    after the other; 0 if not."""
    most_written: int
    """Most steps of an output that are written out."""
    simple: bool
    """Whether the block has one result and no block in it, as TVM's own primitives want."""
    apart: bool
    """Whether neighbours in a row read at a small constant stride, so that whole vectors are read
    and shuffled."""
    together: int
    """Size in bits of the largest element of a step where LLVM takes a vector of steps at a time,
    as of truths that lie one after the other; 0 where it takes one."""


def match_reduction(sch: Schedule) -> ReducedOutputs | None:
    """Return the only reduction of a function, or None if it has none, or several."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if not all(map(is_static, blocks)):
        return None
    at = next((i for i, block in enumerate(blocks) if _is_reduction(block)), None)
    if at is None or any(_is_reduction(block) for block in blocks[at + 1 :]):
        return None
    names = [block.name_hint for block in blocks]
    copies = tuple(name for name, block in zip(names[:at], blocks, strict=False) if is_copy(block))
    trial = sch.copy()
    inline_blocks(trial, copies)
    block = trial.get_sblock(names[at])
    once: tuple[str, ...] = ()
    while producers := _find_read_once(trial, block, set(names[:at]) - {*copies, *once}):
        inline_blocks(trial, producers)
        once += producers
    reduction = Reduction.of(to_simple_indices(trial.get(trial.get_sblock(names[at]))))
    if reduction is None or not is_whole(sch, sch.get_sblock(names[at])):
        return None
    reduction = reduction.narrowed()
    if any(_drop_units(extents_of(b)) != _drop_units(reduction.extents) for b in blocks[at + 1 :]):
        return None
    steps = [bound_steps(step, reduction.axes, reduction.extents) for step in reduction.steps]
    if not all(map(math.isfinite, steps)):
        return None
    several, branches = len(reduction.reducer.stores) > 1, reduction.reducer.branches()
    return ReducedOutputs(
        name=names[at], inlined=(*copies, *once),
        before=tuple(name for name in names[:at] if name not in {*copies, *once}),
        after=tuple(names[at + 1 :]), extents=reduction.extents,
        steps=math.prod(map(int, steps)),
        constant=all(isinstance(step, int) for step in reduction.steps),
        joint=tuple(a for a, _ in enumerate(reduction.extents) if not reduction.hangs_on(a)),
        stride=_find_longest_stride(reduction), work=_count_step_operations(reduction),
        bits=max(element_bits(store.buffer.ty.dtype) for store in reduction.reducer.stores),
        joint_steps=_count_joint_steps(reduction),
        most_written=_MOST_BRANCHES if several and branches else MOST_WRITTEN,
        simple=not several and not is_spatial(reduction.block),
        apart=_is_evenly_apart(reduction), together=_find_vector_step_bits(reduction),
    )  # fmt: skip


def _is_evenly_apart(reduction: Reduction) -> bool:
    """Tell whether neighbouring outputs read at a small constant stride (`apart`)."""
    if not reduction.constant or not reduction.axes or reduction.reducer.branches():
        return False
    buffers = [load.source for load in reduction.loads]
    buffers += [store.buffer for store in reduction.reducer.finals]
    return (
        "bool" not in {str(one.ty.dtype) for one in buffers}
        and find_row_strides(reduction) is not None
    )


def _is_reduction(block: SBlock) -> bool:
    """Tell whether a block reduces, or has a block in it that does."""
    return not is_spatial(block) or not hasattr(block.body, "value")


def _find_read_once(sch: Schedule, block: SBlockRV, before: Collection[str]) -> tuple[str, ...]:
    """Find the producers of a reduction that can be inlined, as each element is read once.

    A block with a border stays: LLVM could not vectorize its branches.
    """
    runs = count_iterations(sch.get(block))
    names = []
    for producer_rv in sch.get_producers(block):
        producer = sch.get(producer_rv)
        is_single_reader = producer.name_hint in before and len(sch.get_consumers(producer_rv)) == 1
        if (
            is_single_reader
            and 0 < runs <= count_iterations(producer)
            and _BRANCH not in str(producer.body)
        ):
            names.append(producer.name_hint)
    return tuple(names)


def _drop_units(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for extent in extents if extent > 1)


def _find_longest_stride(reduction: Reduction) -> int | None:
    """Return the longest stride along the last axis between borders; None if it is not constant."""
    if not reduction.axes:
        return None
    strides = [find_axis_stride(load, reduction.axes[-1]) for load in reduction.loads]
    constant_strides = [stride for stride in strides if stride is not None]
    return max(constant_strides, default=0) if len(constant_strides) == len(strides) else None


def _find_stride_along(reduction: Reduction, variable: Var) -> int | None:
    """Return the longest stride of all loads along a variable; None if one is not constant."""
    strides = [
        find_stride(flat_index(load.source, load.indices), variable) for load in reduction.loads
    ]
    constant_strides = [abs(stride) for stride in strides if stride is not None]
    return max(constant_strides, default=0) if len(constant_strides) == len(strides) else None


def _find_vector_step_bits(reduction: Reduction) -> int:
    """Return `together` of `ReducedOutputs`."""
    stores = reduction.reducer.stores
    if len(stores) > 1 or str(stores[0].buffer.ty.dtype) != "bool" or not reduction.constant:
        return 0
    if _find_stride_along(reduction, reduction.sums[-1]) not in {0, 1}:
        return 0
    return (
        max(element_bits(load.source.ty.dtype) for load in reduction.loads)
        if reduction.loads
        else 0
    )


def _count_joint_steps(reduction: Reduction) -> int:
    """Return `joint_steps` of `ReducedOutputs`."""
    last = reduction.steps[-1] if reduction.steps else 0
    dtypes = {str(store.buffer.ty.dtype) for store in reduction.reducer.stores}
    if not isinstance(last, int) or "bool" in dtypes or reduction.reducer.branches():
        return 0
    if _find_stride_along(reduction, reduction.sums[-1]) not in {0, 1}:
        return 0
    return last if find_join(reduction.reducer, reduction.sums) else 0


def _count_step_operations(reduction: Reduction) -> int:
    """Count the loads and operations of a step, without those of indices."""

    def named(load: TensorLoad) -> Var:
        return tirx.Var("loaded", load.ty)

    reducer = reduction.reducer
    bare = (replace_variables(value, [], named) for value in reducer.values)
    return len(reduction.loads) + sum(map(count_arithmetic, bare))
