"""Template for reductions whose outputs fill no vectors: pooling in NCHW, argmax of rows, totals.

The windows of neighbouring outputs lie apart or are of several lengths, or there are few outputs,
or where they come from is known at run time only. There are three forms, each ranked by an estimate
for each of its settings:

- `lanes`: an output is reduced in partial results, in vectors along its last steps, which are
  joined at the end. For reducers of which that can be proved to be right.
- `chains`: outputs along one axis are reduced side by side, so that the steps of one hide the
  latency of the others.
- `rows`: the steps of an output are written out. Where neighbours in a row read what is evenly
  apart, vectors of outputs are written; elsewhere the loop over a row is left to LLVM.

Example: where the largest element of each row of [128, 513] is, in `lanes` of 8.

    for row in range(128):
        at[0:8], most[0:8] = -1, -inf
        for turn in range(64):
            at[0:8], most[0:8] = larger of these and (8 * turn + 0:8, x[row, 8 * turn + 0:8])
        at[0], most[0] = larger of these and (512, x[row, 512])
        at[0:4], most[0:4] = larger of these and (at[4:8], most[4:8])
        ...                                           # then of two, and of one
        y[row] = at[0]
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV

from autopipe.compiler.loops.count_operations import longest
from autopipe.schedules.analysis.blocks import extents_of, is_copy, is_spatial, is_static, is_whole
from autopipe.schedules.analysis.joining import joined
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.analysis.rows import count
from autopipe.schedules.analysis.simple_indices import counted, simplified
from autopipe.schedules.analysis.step_cost import bits_of, joint_steps, stride, together, work
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import put
from autopipe.schedules.templates.contraction import prepared
from autopipe.schedules.tiling.chains import ChainLoops
from autopipe.schedules.tiling.padding import Padding
from autopipe.schedules.tiling.row_nest import RowNest
from autopipe.schedules.tiling.strided import apart

NAME: Final = "reduction"
VERSION: Final = 4

MOST_WRITTEN: Final = 64
"""Most steps of an output that are written out."""

_MOST_BRANCHES: Final = 9
"""Most where several results ask whether their operands may be read: TVM takes 48 s for 16."""

_CHAINS: Final = (1, 2, 4, 8, 16)
"""Outputs that are reduced side by side."""

_LATENCY: Final = 4
"""Cycles until the next step can begin."""

_ISSUE: Final = 3
"""Operations and loads that begin in a cycle."""

_STREAM: Final = 0.2
"""What each further output adds to a step of all, where LLVM takes a vector of steps at a time:
512 truths of 8 outputs at a time took 3.0 vectors' time for each two."""

_VECTORS: Final = 4
"""Vectors of partial results that hide the latency of a step."""

_LEAST_WIDTH: Final = 4
"""Fewest outputs in a vector that is written."""

_OUTPUT: Final = 10
"""Cycles around the steps of an output: where it is, and the store."""

_NEAR: Final = 4
"""Elements between neighbours up to which LLVM makes vectors of loads and shuffles."""

_BRANCH: Final = "if_then_else"

_PLANES: Final = 16
"""Planes that are enough to divide among threads."""

_START: Final = 12_000.0
"""Cycles that two threads must save: half of the work that pays in `effort`."""


@dataclass(frozen=True, slots=True)
class ReducedOutputs:
    """What the knobs depend on."""

    name: str
    """Name of the block that reduces."""
    inlined: tuple[str, ...]
    """Blocks that only copy an operand, or compute what is read once."""
    before: tuple[str, ...]
    """Other blocks that prepare operands."""
    after: tuple[str, ...]
    """Elementwise blocks on the result, in order."""
    extents: tuple[int, ...]
    steps: int
    """Most steps of an output."""
    constant: bool
    """Whether all outputs have so many."""
    joint: tuple[int, ...]
    """Axes along which outputs have equally many steps."""
    stride: int | None
    """Elements from what one output reads to what its neighbour along the last axis does, the most
    of all operands; None where that is not constant."""
    work: int
    """Loads and operations of a step."""
    bits: int
    """Size of a result, in bits; of the largest one."""
    joint_steps: int
    """Last steps that may be in vectors: results can be joined, and neighbours lie in memory one
    after the other; 0 if not."""
    most_written: int
    """Most steps of an output that are written out."""
    simple: bool
    """Whether the block has one result and no block in it, as TVM's own primitives want."""
    apart: bool
    """Whether what neighbours in a row read is evenly apart, and not far, so that whole vectors
    are read and shuffled."""
    together: int
    """Size in bits of the largest element of a step where LLVM takes a vector of steps at a time,
    as of truths that lie one after the other; 0 where it takes one."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The knobs."""

    form: Literal["lanes", "chains", "rows"]
    axis: int
    """Along which outputs are side by side; -1 for a single output."""
    count: int
    """How many outputs are reduced at a time, or in how many partial results one is."""
    width: int
    """Partial results in a vector."""
    threads: bool
    """Whether threads share the outputs."""


def match(sch: Schedule) -> ReducedOutputs | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if not all(map(is_static, blocks)):
        return None
    at = next((i for i, block in enumerate(blocks) if _reduces(block)), None)
    if at is None or any(_reduces(block) for block in blocks[at + 1 :]):
        return None
    names = [block.name_hint for block in blocks]
    copies = tuple(name for name, block in zip(names[:at], blocks, strict=False) if is_copy(block))
    trial = sch.copy()
    for name in copies:
        trial.compute_inline(trial.get_sblock(name))
    block = trial.get_sblock(names[at])
    once: tuple[str, ...] = ()
    while found := _read_once(trial, block, set(names[:at]) - {*copies, *once}):
        for name in found:
            trial.compute_inline(trial.get_sblock(name))
        once += found
    reduction = Reduction.of(simplified(trial.get(trial.get_sblock(names[at]))))
    if reduction is None or not is_whole(sch, sch.get_sblock(names[at])):
        return None
    reduction = reduction.narrowed()
    if any(_long(extents_of(b)) != _long(reduction.extents) for b in blocks[at + 1 :]):
        return None
    steps = [longest(step, reduction.axes, reduction.extents) for step in reduction.steps]
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
        stride=stride(reduction), work=work(reduction),
        bits=max(bits_of(store.buffer) for store in reduction.reducer.stores),
        joint_steps=joint_steps(reduction),
        most_written=_MOST_BRANCHES if several and branches else MOST_WRITTEN,
        simple=not several and not is_spatial(reduction.block),
        apart=_evenly(reduction), together=together(reduction),
    )  # fmt: skip


def settings(found: ReducedOutputs, hardware: HardwareParams) -> Iterator[SideBySide]:
    """Yield every form and number, with and without threads."""
    last = len(found.extents) - 1
    for threads in (False, True) if found.extents else (False,):
        lanes = hardware.lanes(found.bits)
        for partial in (lanes, _VECTORS * lanes):
            if 1 < partial <= found.joint_steps:
                yield SideBySide("lanes", last, partial, lanes, threads)
        short = found.constant and found.steps <= found.most_written and found.extents
        if short and (found.simple or not found.before):
            width = _row_width(found, hardware)
            yield SideBySide("rows", last, 1, width, threads)
        for axis in found.joint or (last,):
            for chains in _CHAINS if found.joint else (1,):
                if chains == 1 or chains <= found.extents[axis]:
                    yield SideBySide("chains", axis, chains, 1, threads)


def fill(found: ReducedOutputs, hardware: HardwareParams) -> SideBySide:
    """Return the knobs of the least estimated time on a processor, without measuring."""
    return min(settings(found, hardware), key=lambda knobs: estimate(found, knobs, hardware))


def estimate(found: ReducedOutputs, knobs: SideBySide, hardware: HardwareParams) -> float:
    """Return the estimated cycles until the last core is done."""
    jobs = outputs = math.prod(found.extents)
    at_once = hardware.lanes(found.together) if found.together else 1
    work, steps = found.work / _ISSUE, -(-found.steps // at_once)
    if knobs.form == "lanes":
        vectors = knobs.count // knobs.width
        turns = steps / found.joint_steps * -(-found.joint_steps // knobs.count)
        cycles = outputs * (turns * max(vectors * work, _LATENCY) + _OUTPUT)
        cycles += outputs * math.log2(knobs.count) * (_LATENCY + work)
    elif knobs.form == "rows":
        near = found.stride is not None and found.stride <= _NEAR
        lanes = max(1, hardware.lanes(found.bits) // max(1, found.stride or 1)) if near else 1
        jobs, row = outputs // found.extents[-1], found.extents[-1]
        vectors, rest = divmod(row, hardware.lanes(found.bits))
        if knobs.width > 1:  # the last vector overlaps the one before
            vectors, rest = -(-row // knobs.width), 0
        share = (vectors * hardware.lanes(found.bits) / lanes + rest) / row  # of single elements
        cycles = outputs * share * (steps * work + 1)
    else:
        length = found.extents[knobs.axis] if found.extents else 1
        jobs = outputs // length * -(-length // knobs.count)
        cycles = jobs * _side_by_side(found, knobs.count, steps, work)
    return cycles * -(-jobs // hardware.cores) / jobs + _START if knobs.threads else cycles


def _side_by_side(found: ReducedOutputs, count: int, steps: int, work: float) -> float:
    """Return the cycles of so many outputs that are reduced at a time."""
    if found.together:  # LLVM takes several vectors a turn, which hide the latency of each other
        return steps * count * work * (1 + _STREAM * (count - 1)) + _OUTPUT
    return steps * max(count * work, _LATENCY) + _OUTPUT * count


def apply(sch: Schedule, found: ReducedOutputs, knobs: SideBySide) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    for name in (*found.inlined, *found.after[:-1]):
        sch.compute_inline(sch.get_sblock(name))
    if knobs.form == "rows" and found.before:
        _by_rows(sch, found, threads=knobs.threads)
        return
    nests = prepared(sch, found.name, found.before, _NEAR)
    reduction = Reduction.of(simplified(sch.get(sch.get_sblock(found.name))))
    if reduction is None:
        raise ScheduleError(f"block {found.name} no longer reduces")
    last = counted(simplified(sch.get(sch.get_sblock(found.after[-1])))) if found.after else None
    totals = [store.buffer for store in reduction.reducer.stores]
    put(sch, [*nests, _written(reduction.narrowed(), last, knobs)], totals, last)


def _written(reduction: Reduction, last: SBlock | None, knobs: SideBySide) -> tvm.tirx.Stmt:
    """Return the loops of a reduction, and of the block that follows it."""
    if knobs.form == "rows":
        return RowNest(reduction, last, knobs.threads, knobs.width).write()
    if knobs.form == "lanes":
        join = joined(reduction.reducer, reduction.sums)
        loops = ChainLoops(
            reduction, last, knobs.axis, 1, knobs.threads, join, knobs.count, knobs.width
        )
    else:
        loops = ChainLoops(reduction, last, knobs.axis, knobs.count, knobs.threads)
    return loops.write()


def _by_rows(sch: Schedule, found: ReducedOutputs, *, threads: bool) -> None:
    """Write out the steps of an output. A padded plane is computed where its rows are read.

    Of few planes threads share the rows, and a border is asked for where it is read.
    """
    block = sch.get_sblock(found.name)
    producers = {sch.get(one).name_hint for one in sch.get_producers(block)}
    few = math.prod(found.extents[:-2]) < _PLANES
    for name in found.before:
        if name not in producers or (few and _is_border(sch.get(sch.get_sblock(name)))):
            sch.compute_inline(sch.get_sblock(name))
            producers -= {name}
    result = sch.get_sblock(found.after[-1]) if found.after else sch.cache_write(block, 0, "local")
    *outer, row = sch.get_loops(result)
    planes = outer if not producers & {*found.before} else outer[: max(1, len(outer) - 1)]
    plane = sch.fuse(*planes) if planes else sch.add_unit_loop(row)
    if threads:
        sch.parallel(plane)
    sch.compute_at(block, row, preserve_unit_loops=True)
    for name in producers & {*found.before}:
        sch.compute_at(sch.get_sblock(name), plane)
    steps = sch.get_loops(block)[-len(extents_of(sch.get(block), spatial=False)) :]
    sch.decompose_reduction(block, steps[0])
    for step in steps:
        sch.unroll(step)


def _is_border(block: SBlock) -> bool:
    """Tell whether a block copies, with a border around."""
    return (padding := Padding.of(block)) is not None and isinstance(padding.value, TensorLoad)


def _row_width(found: ReducedOutputs, hardware: HardwareParams) -> int:
    """Return how many outputs of a row a vector has; 1 where LLVM is to make vectors."""
    lanes = hardware.lanes(found.bits)
    width = min(lanes, 1 << found.extents[-1].bit_length() - 1)
    return width if found.apart and not found.before and width >= _LEAST_WIDTH else 1


def _evenly(reduction: Reduction) -> bool:
    """Return `apart` of `ReducedOutputs`."""
    if not reduction.constant or not reduction.axes or reduction.reducer.branches():
        return False
    buffers = [load.source for load in reduction.loads]
    buffers += [store.buffer for store in reduction.reducer.finals]
    return "bool" not in {str(one.ty.dtype) for one in buffers} and apart(reduction) is not None


def _reduces(block: SBlock) -> bool:
    """Tell whether a block reduces, or has a block in it that does."""
    return not is_spatial(block) or not hasattr(block.body, "value")


def _read_once(sch: Schedule, block: SBlockRV, before: Collection[str]) -> tuple[str, ...]:
    """Return the blocks right before a reduction whose elements it reads once, in order.

    A block with a border stays: vectors could not be made of its branches.
    """
    runs = count(sch.get(block))
    found = []
    for one in sch.get_producers(block):
        producer = sch.get(one)
        own = producer.name_hint in before and len(sch.get_consumers(one)) == 1
        if own and 0 < runs <= count(producer) and _BRANCH not in str(producer.body):
            found.append(producer.name_hint)
    return tuple(found)


def _long(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for extent in extents if extent > 1)
