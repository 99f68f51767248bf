"""Template for functions without reduction that read memory nearly in the order they write it.

It serves chains of elementwise ops, broadcasts, slices, padding, concatenation, resizing and
lookups. The output is written in vectors, within which no condition changes. A loop of few parts is
unrolled, so that conditions are constant in each; longer ones, which LLVM vectorizes, are for the
pass `split_at_borders`. Functions that read across memory are for template `transpose`.

Rows that are read with a stride, or with a divided index, are written in nested loops over planes,
rows and columns: dilations, repeats, upsampled images, space to depth and the like. Decomposing a
fused row index costs as much as a short row, and a division in the index along a row prevents
vectors. Where a period of outputs is unrolled, divisions and the conditions on their remainders
disappear; LLVM emits interleaved stores.

Example: the concatenation of x [4, 32] and y [4, 64] along the last axis.

    for i, j in grid(4, 96):                          # before
        out[i, j] = x[i, j] if j < 32 else y[i, j - 32]

    for i in range(4):                                # after: parts (32, 64), vectors of 32
        out[i, 0:32]  = x[i, 0:32]                    # three steps, unrolled
        out[i, 32:64] = y[i, 0:32]
        out[i, 64:96] = y[i, 32:64]

Example: y[c, i, j] = x[c, i // 2, j // 2] if i % 2 == 0 and j % 2 == 0 else 0, of [64, 111, 111].

    for c in parallel(64):
        for i in range(56):
            for j in range(55):
                y[c, 2 * i, 2 * j], y[c, 2 * i, 2 * j + 1] = x[c, i, j], 0
            y[c, 2 * i, 110] = x[c, i, 55]
            if 2 * i + 1 < 111:
                for j in range(55): ...                      # zeros

Example: y = relu(x) of [1, height, width, 3] with dynamic sizes, in vectors of 16.

    for row in parallel(height):
        for step in range(width * 3 // 16):                  # the last two axes are collapsed
            y[row, 16 * step : 16 * step + 16] = relu(x[row, 16 * step : 16 * step + 16])
        for rest in range(width * 3 % 16): ...               # one element after the other
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV

from autopipe.compiler.dynamic_sizes.kernel_sizes import read_dynamic_sizes
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.choices import read_both, replace_branches
from autopipe.schedules.analysis.movement import (
    Movement,
    find_innermost,
    inline_into_last,
    match_movement,
)
from autopipe.schedules.analysis.rewritten_axes import collapse_last_axes
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import ELEMENTS, JOBS
from autopipe.schedules.primitives import parallelize_loop, rewrite_function
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.elementwise_nests import PlaneNest, VectorRows, is_in_steps

MOST_VECTORS = 4
"""Maximum registers that a vectorized loop fills."""

VECTORS = 2
"""Maximum registers that a vectorized loop fills where nothing is measured."""

NARROW = 4
"""Elements in the shortest vector that a schedule asks for; LLVM is faster on shorter loops."""

SHORT = 8
"""Maximum iterations of an inner loop that is unrolled."""

MOST_PARTS = 64
"""Maximum parts of a long row that run in parallel."""

_LOST: Final = 4
"""Threads that compensate for vectors that LLVM makes on one thread only: 4 to 5 times faster."""

_ALONE: Final = 1 << 18
"""Maximum elements for which settings on one thread are proposed."""

_NEVER: Final = 1 << 62
"""More elements than there are."""

_MOST_COPIES: Final = 256
"""Most copies of a loop that is unrolled so that conditions are constant in each."""


@dataclass(frozen=True, slots=True)
class Run:
    """The knobs."""

    width: int
    """Elements in the vectorized loop, a power of two or a whole row; 1 leaves vectorization to
    LLVM."""
    threads: bool = True
    """Whether loops run in parallel where there are `ELEMENTS` elements."""
    planes: bool = False
    """Whether loops over planes, rows and columns are nested, a period of outputs unrolled."""


class ElementwiseTemplate(Template[Movement, Run]):
    """Elementwise functions and copies along the rows of their outputs."""

    name = "elementwise"
    version = schedule_version("elementwise")
    serves_dynamic = True

    def match(self, sch: Schedule) -> Movement | None:
        """Match the function, or return None if the template does not apply."""
        match = match_movement(sch)
        if match is None or 0 in match.extents:  # nothing to compute
            return None
        return replace(match, in_steps=is_in_steps(sch, match))

    def prove_at_every_size(self, _sch: Schedule, match: Movement) -> Movement | None:
        """Extend a match at specialized sizes to every size; None if reads are not linear.

        LLVM is faster on those, such as upsampled images, without vectors.
        """
        even = all(
            read is not None and find_innermost(read, match.extents).extent == match.extents[-1]
            for read in match.reads
        )
        return replace(match, is_dynamic=True) if even else None

    def settings(self, movement: Movement, hardware: HardwareParams) -> Iterator[Run]:
        """Yield nested loops where rows allow them, then every width of the vectorized loop.

        With dynamic sizes these are one register, two and half of one.
        """
        if movement.is_dynamic:
            lanes = hardware.lanes(movement.bits)
            yield from (Run(width) for width in (lanes, 2 * lanes, lanes // 2) if width)
            return
        if movement.in_steps:
            yield Run(1, planes=True)
            yield Run(1, threads=False, planes=True)
        run = _compute_run_length(movement)
        if row := _pick_odd_width(movement, hardware):
            yield Run(row)
            yield Run(row, threads=False)
        width = 1
        while run % width == 0 and width <= MOST_VECTORS * hardware.lanes(movement.bits):
            if width == 1 or width >= NARROW:
                yield Run(width)
                if ELEMENTS <= math.prod(movement.extents) <= _ALONE:
                    yield Run(width, threads=False)
            width *= 2

    def fill(self, movement: Movement, hardware: HardwareParams) -> Run:
        """Choose the knobs for a processor, without measuring."""
        if movement.is_dynamic:
            return next(self.settings(movement, hardware))
        if movement.in_steps:
            threads = movement.effort.pays(math.prod(movement.extents), hardware)
            return Run(1, threads=threads, planes=True)
        lanes = hardware.lanes(movement.bits)
        width = max(
            run.width for run in self.settings(movement, hardware) if run.width <= VECTORS * lanes
        )
        full_width = lanes if movement.chooses or movement.copies else VECTORS * lanes
        if movement.mixed or movement.backwards or movement.scattered or width < full_width:
            # LLVM unrolls several vectors, and adds a remainder loop
            width = _pick_odd_width(movement, hardware) or _pick_short_width(movement) or 1
        elements = math.prod(movement.extents)
        is_faster_serial = movement.looks_up and hardware.cores <= _LOST
        pays_for_threads = movement.effort.pays(elements, hardware) and not is_faster_serial
        single_thread = ELEMENTS <= elements <= _ALONE and not pays_for_threads
        return Run(width, not single_thread)

    def apply(self, sch: Schedule, movement: Movement, run: Run) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        block = inline_into_last(sch)
        if movement.is_dynamic:
            dynamic_sizes = read_dynamic_sizes(sch.mod["main"])
            rewrite_function(
                sch, VectorRows(sch.get(block), movement, run.width, dynamic_sizes).write()
            )
        elif run.planes:
            rewrite_function(sch, PlaneNest(sch.get(block), parallel=run.threads).write())
        else:
            _schedule_rows(sch, block, movement, run)


ELEMENTWISE: Final = ElementwiseTemplate()


def _schedule_rows(sch: Schedule, block: SBlockRV, movement: Movement, run: Run) -> None:
    """Vectorize along rows, by schedule primitives of TVM."""
    tail = movement.tail
    if run.width > 1 and movement.indexed and movement.chooses:  # else a unit matrix takes 6 times
        replace_branches(sch, block)
    if movement.folded or (tail > 1 and _can_cross_axis(movement, run.width)):
        with suppress(ScheduleError):  # some tensor is read with a stride: it stays as it is
            block, tail = collapse_last_axes(sch, block, tail), 1
    loops = sch.get_loops(block)
    outer, last = list(loops[:-tail]), sch.fuse(*loops[-tail:])
    if not movement.parts and _compute_run_length(movement) < int(sch.get(last).extent):
        head, last = sch.split(last, [None, _compute_run_length(movement)])
        outer.append(head)
    copies = _count_copies(movement, run)
    if run.width > 1:
        last, vector = sch.split(last, [None, run.width])
        sch.vectorize(vector)
    elif outer and int(sch.get(last).extent) <= SHORT:
        sch.unroll(last)
        last, copies = outer.pop(), 1
    if copies == 1:
        outer, last = _split_threads(sch, outer, last, run)
    if jobs := outer[:-1] if run.width == 1 and _has_costly_rows(movement) else outer:
        parallelize_loop(sch, block, sch.fuse(*jobs), ELEMENTS if run.threads else _NEVER)
    if run.width == 1 and movement.both:  # else the gradient of a loss takes 13 times as long
        read_both(sch, block)
    if copies > 1:
        sch.unroll(sch.split(last, [copies, None])[0])


def _pick_odd_width(movement: Movement, hardware: HardwareParams) -> int:
    """Return the elements of a row that becomes one vector, though no power of two; or 0.

    A row of 37 becomes two vectors of 16 and five single elements by LLVM, which take most of the
    time. A vector of 37 is two of 16, one of 4 and a single element.
    """
    row, lanes = movement.extents[-1], hardware.lanes(movement.bits)
    odd = movement.mixed or movement.folded or movement.looks_up
    fits = SHORT < row <= MOST_VECTORS * lanes and row % lanes
    plain = movement.tail == 1 and not movement.parts and not odd
    return row if plain and fits and _is_in_order(movement) else 0


def _is_in_order(movement: Movement) -> bool:
    """Tell whether all reads are contiguous or constant along the last axis."""
    return all(
        read is not None and find_innermost(read, movement.extents).stride in {0, 1}
        for read in movement.reads
    )


def _pick_short_width(movement: Movement) -> int:
    """Return the elements of a short gathered row that becomes one vector; or 0.

    Unrolled, LLVM would load the index of the row once for each of its elements.
    """
    row = movement.extents[-1]
    joins = movement.copies and len(movement.reads) > 1  # the other reads are its indices
    return row if joins and row in {NARROW, SHORT} and _is_in_order(movement) else 0


def _split_threads(
    sch: Schedule, outer: list[LoopRV], last: LoopRV, run: Run
) -> tuple[list[LoopRV], LoopRV]:
    """Return enough outer loops to run in parallel, and the inner loop, if rows are too few.

    A long row is split into vectors, or into parts that LLVM vectorizes.
    """
    rows = math.prod(int(sch.get(loop).extent) for loop in outer)
    if rows < JOBS and run.width > 1:
        return [*outer, last], last
    extent = int(sch.get(last).extent)
    if rows >= JOBS or not run.threads or rows * extent < ELEMENTS:
        return outer, last
    parts = list_divisors(extent, MOST_PARTS)[-1]
    head, last = sch.split(last, [parts if rows * parts >= JOBS else MOST_PARTS, None])
    return [*outer, head], last


def _count_copies(movement: Movement, run: Run) -> int:
    """Count the copies of the loop along a row, in each of which no condition changes; 1 if many.

    Parts of (32, 64) need 3 copies of 32. The pass `split_at_borders` leaves short parts whole:
    joined rows of three times 12 take 10 times as long without copies. Where rows differ by a
    condition, LLVM vectorizes the loop as it is. TVM's own `loop_partition` defines the same
    variables twice, which its passes refuse.
    """
    parts = [part // run.width for part in movement.parts]
    copies = sum(parts) // math.gcd(*parts) if parts else 1
    return copies if copies <= (SHORT if movement.elsewhere else _MOST_COPIES) else 1


def _has_costly_rows(movement: Movement) -> bool:
    """Tell whether decomposing the index of a row costs as much as a few vectors.

    A loop over rows is not fused with those over planes then: rows of clamped images of 9 x 9 take
    5 times as long fused.
    """
    return movement.scattered and math.prod(movement.extents[:-2]) >= JOBS


def _can_cross_axis(movement: Movement, width: int) -> bool:
    """Tell whether a vector may cross the end of some axis; LLVM chooses the width for 1."""
    return width == 1 or any(extent % width for extent in movement.extents[1 - movement.tail :])


def _compute_run_length(movement: Movement) -> int:
    """Count the contiguous outputs that are read by the same linear index."""
    return math.prod(movement.extents[-movement.tail :]) if movement.tail > 1 else movement.run
