"""Template for reductions whose outputs fill no vectors: pooling in NCHW, argmax of rows, totals.

The windows of neighbouring outputs do not overlap or differ in length, or there are few outputs,
or indices are data-dependent. There are three forms, and each setting of a form is ranked by an
estimate:

- `lanes`: an output is reduced to partial results, in vectors along its innermost steps, which are
  combined at the end. For reducers that are proved to be associative.
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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import extents_of
from autopipe.schedules.analysis.joining import find_join
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.analysis.simple_indices import to_simple_indices
from autopipe.schedules.cost import parallel_ns, to_ns
from autopipe.schedules.divisors import floor_power
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import JOBS
from autopipe.schedules.primitives import inline_blocks, replace_sums
from autopipe.schedules.templates.contraction import build_operand_nests
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.chains import ChainLoops
from autopipe.schedules.tiling.padding import Padding
from autopipe.schedules.tiling.reduced_outputs import ReducedOutputs, match_reduction
from autopipe.schedules.tiling.row_nest import RowNest

_CHAINS: Final = (1, 2, 4, 8, 16)
"""Numbers of outputs that are reduced side by side."""

_ISSUE: Final = 3
"""Operations and loads that are issued in a cycle."""

_STREAM: Final = 0.2
"""Cost that each further output adds to a step, where LLVM vectorizes steps: 512 booleans of 8
outputs at a time took 3.0 vectors' time for each two."""

_VECTORS: Final = 4
"""Vectors of partial results that hide the latency of a step."""

_LEAST_WIDTH: Final = 4
"""Minimum number of outputs in a vector that is written."""

_OUTPUT: Final = 10
"""Cycles around the steps of an output: address arithmetic and the store."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The knobs."""

    form: Literal["lanes", "chains", "rows"]
    axis: int
    """Axis along which outputs are side by side; -1 for a single output."""
    count: int
    """Outputs that are reduced at a time, or partial results of one output."""
    width: int
    """Partial results in a vector."""
    threads: bool
    """Whether threads share the outputs."""


class ReductionTemplate(Template[ReducedOutputs, SideBySide]):
    """Reductions over any axes, side by side in vectors."""

    name = "reduction"
    version = schedule_version("reduction")

    def match(self, sch: Schedule) -> ReducedOutputs | None:
        """Match the function, or return None if the template does not apply."""
        return match_reduction(sch)

    def settings(self, match: ReducedOutputs, hardware: HardwareParams) -> Iterator[SideBySide]:
        """Yield every form and count, with and without threads."""
        last = len(match.extents) - 1
        for threads in (False, True) if match.extents else (False,):
            lanes = hardware.lanes(match.bits)
            for partial in (lanes, _VECTORS * lanes):
                if 1 < partial <= match.joint_steps:
                    yield SideBySide("lanes", last, partial, lanes, threads)
            short = match.constant and match.steps <= match.most_written and match.extents
            if short and (match.simple or not match.before):
                width = _choose_row_width(match, hardware)
                yield SideBySide("rows", last, 1, width, threads)
            for axis in match.joint or (last,):
                for chains in _CHAINS if match.joint else (1,):
                    if chains == 1 or chains <= match.extents[axis]:
                        yield SideBySide("chains", axis, chains, 1, threads)

    def estimate(self, match: ReducedOutputs, knobs: SideBySide, hardware: HardwareParams) -> float:
        """Estimate the nanoseconds until the last core is done."""
        jobs = outputs = math.prod(match.extents)
        at_once = hardware.lanes(match.together) if match.together else 1
        latency = hardware.machine.fma_latency_cycles  # of additions and comparisons, too
        work, steps = match.work / _ISSUE, -(-match.steps // at_once)
        if knobs.form == "lanes":
            vectors = knobs.count // knobs.width
            turns = steps / match.joint_steps * -(-match.joint_steps // knobs.count)
            cycles = outputs * (turns * max(vectors * work, latency) + _OUTPUT)
            cycles += outputs * math.log2(knobs.count) * (latency + work)
        elif knobs.form == "rows":
            lanes = 1  # where neighbours read at no constant stride
            if match.stride is not None:
                lanes = max(1, hardware.lanes(match.bits) // max(1, match.stride))
            jobs, row = outputs // match.extents[-1], match.extents[-1]
            vectors, rest = divmod(row, hardware.lanes(match.bits))
            if knobs.width > 1:  # the last vector overlaps the one before
                vectors, rest = -(-row // knobs.width), 0
            singles = vectors * hardware.lanes(match.bits) / lanes + rest
            share = singles / row
            cycles = outputs * share * (steps * work + 1)
        else:
            length = match.extents[knobs.axis] if match.extents else 1
            jobs = outputs // length * -(-length // knobs.count)
            cycles = jobs * _estimate_chain_cycles(match, knobs.count, steps, (work, latency))
        nanoseconds = to_ns(cycles, hardware.machine)
        return parallel_ns(nanoseconds, jobs, hardware) if knobs.threads else nanoseconds

    def apply(self, sch: Schedule, match: ReducedOutputs, knobs: SideBySide) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        if knobs.form == "rows" and match.before:
            inline_blocks(sch, (*match.inlined, *match.after[:-1]))
            _schedule_rows(sch, match, threads=knobs.threads)
            return
        nests = build_operand_nests(sch, match, _LEAST_WIDTH)
        reduction = Reduction.of(to_simple_indices(sch.get(sch.get_sblock(match.name))))
        if reduction is None:
            raise ScheduleError(f"block {match.name} no longer reduces")
        last = match.find_last(sch)
        totals = [store.buffer for store in reduction.reducer.stores]
        replace_sums(sch, [*nests, _build_loops(reduction.narrowed(), last, knobs)], totals, last)


REDUCTION: Final = ReductionTemplate()


def _estimate_chain_cycles(
    match: ReducedOutputs, count: int, steps: int, step: tuple[float, float]
) -> float:
    """Estimate the cycles of `count` outputs that are reduced at a time.

    `step` is the cycles of a step of one output, and its latency.
    """
    work, latency = step
    if match.together:  # LLVM interleaves several vectors, which hide each other's latency
        return steps * count * work * (1 + _STREAM * (count - 1)) + _OUTPUT
    return steps * max(count * work, latency) + _OUTPUT * count


def _build_loops(reduction: Reduction, last: SBlock | None, knobs: SideBySide) -> tvm.tirx.Stmt:
    """Build the loops of a reduction, and of the block that follows it."""
    if knobs.form == "rows":
        return RowNest(reduction, last, knobs.threads, knobs.width).write()
    join, chains, partial = None, knobs.count, 1
    if knobs.form == "lanes":
        join, chains, partial = find_join(reduction.reducer, reduction.sums), 1, knobs.count
    return ChainLoops(
        reduction, last, knobs.axis, chains, knobs.threads, join, partial, knobs.width
    ).write()


def _schedule_rows(sch: Schedule, match: ReducedOutputs, *, threads: bool) -> None:
    """Unroll the steps of an output, and compute padded planes where their rows are read.

    With few planes the rows run in parallel, and padding is inlined.
    """
    block = sch.get_sblock(match.name)
    producers = {sch.get(one).name_hint for one in sch.get_producers(block)}
    has_few_planes = math.prod(match.extents[:-2]) < JOBS
    for name in match.before:
        if name not in producers or (has_few_planes and _is_border(sch.get(sch.get_sblock(name)))):
            sch.compute_inline(sch.get_sblock(name))
            producers -= {name}
    result = sch.get_sblock(match.after[-1]) if match.after else sch.cache_write(block, 0, "local")
    *outer, row = sch.get_loops(result)
    planes = outer if not producers & {*match.before} else outer[: max(1, len(outer) - 1)]
    plane = sch.fuse(*planes) if planes else sch.add_unit_loop(row)
    if threads:
        sch.parallel(plane)
    sch.compute_at(block, row, preserve_unit_loops=True)
    for name in producers & {*match.before}:
        sch.compute_at(sch.get_sblock(name), plane)
    steps = sch.get_loops(block)[-len(extents_of(sch.get(block), spatial=False)) :]
    sch.decompose_reduction(block, steps[0])
    for step in steps:
        sch.unroll(step)


def _is_border(block: SBlock) -> bool:
    """Tell whether a block copies a buffer and pads it."""
    return (padding := Padding.of(block)) is not None and isinstance(padding.value, TensorLoad)


def _choose_row_width(match: ReducedOutputs, hardware: HardwareParams) -> int:
    """Choose the outputs of a row in a vector; 1 where LLVM vectorizes."""
    lanes = hardware.lanes(match.bits)
    width = min(lanes, floor_power(match.extents[-1]))
    return width if match.apart and not match.before and width >= _LEAST_WIDTH else 1
