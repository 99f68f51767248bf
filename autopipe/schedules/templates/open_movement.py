"""Template for functions of dynamic sizes that reduce nothing: elementwise work, joins, copies.

It does what `elementwise` does to static functions, but writes the loops itself: no number of
elements in a vector divides a dynamic size.

Example, with vectors of 16:

    for row in parallel(height):                        # y = relu(x), [1, height, width, 3]
        for step in range(width * 3 // 16):             # the last two axes are as good as one
            y[row, 16 * step : 16 * step + 16] = relu(x[row, 16 * step : 16 * step + 16])
        for rest in range(width * 3 % 16):
            ...                                         # one element after the other
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm.ir import Expr
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import OpenSizes, known_of
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import (
    Extent,
    enough,
    lengths_of,
    number_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    either,
    elements,
    loads_of,
    substitute,
    unfold,
    whole,
)
from autopipe.schedules.analysis.movement import AxisPiece, combined, innermost, recognize
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import ELEMENTS, rewrite
from autopipe.schedules.templates.template import Template

_ROWS: Final = 16
"""Iterations of the outer loops that are enough to divide among threads."""


@dataclass(frozen=True, slots=True)
class OpenMovement:
    """What the knobs depend on."""

    extents: tuple[int, ...]
    """Extents of the output's axes."""
    bits: int
    """Size of the largest element that is read or written, in bits."""
    parts: tuple[int, ...]
    """Extents into which conditions divide the last axis, as in a concatenation; () without."""
    tail: int
    """Number of last axes that are as good as one."""


@dataclass(frozen=True, slots=True)
class MovementVectors:
    """The knobs."""

    width: int
    """Elements in a vector where memory is read in order."""


class OpenMovementTemplate(Template[OpenMovement, MovementVectors]):
    """Elementwise functions and copies with dynamic sizes."""

    name = "open_movement"
    version = schedule_version("open_movement")
    serves_static = False
    serves_dynamic = True

    def match(self, sch: Schedule) -> OpenMovement | None:
        """Return what the knobs depend on, or None if the function is for another template."""
        movement = recognize(sch)
        if movement is None:
            return None
        if not all(_evenly(read, movement.extents) for read in movement.reads):
            return None  # enlarged images, say: LLVM does better without vectors
        return OpenMovement(movement.extents, movement.bits, movement.parts, movement.tail)

    def settings(self, match: OpenMovement, hardware: HardwareParams) -> Iterator[MovementVectors]:
        """Yield vectors of one and two registers and half of one, and tiles of three sizes."""
        lanes = hardware.lanes(match.bits)
        yield from (MovementVectors(width) for width in (lanes, 2 * lanes, lanes // 2) if width)

    def fill(self, match: OpenMovement, hardware: HardwareParams) -> MovementVectors:
        """Return the knobs for a processor, without measuring."""
        return next(self.settings(match, hardware))

    def apply(self, sch: Schedule, match: OpenMovement, knobs: MovementVectors) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        known = known_of(sch.mod["main"])
        if known is None:
            raise ScheduleError("no size is open")
        block = sch.get(combined(sch))
        loops = _MovementLoops(block, match, knobs, known)
        with IRBuilder() as builder:
            loops.write()
        rewrite(sch, builder.get())


OPEN_MOVEMENT: Final = OpenMovementTemplate()


def _evenly(read: tuple[AxisPiece, ...] | None, extents: tuple[int, ...]) -> bool:
    """Tell whether a read moves by one stride through the whole last axis."""
    return read is not None and innermost(read, extents).extent == extents[-1]


@dataclass(frozen=True, slots=True)
class _MovementLoops:
    """Writes the loops around the only statement of a function."""

    block: SBlock
    match: OpenMovement
    knobs: MovementVectors
    known: OpenSizes

    @property
    def lengths(self) -> tuple[Extent, ...]:
        """Extents of the output's axes, as expressions where a size is open."""
        return lengths_of(self.block)

    parallel: bool = False

    def write(self) -> None:
        """Write the loops, in parallel where that pays. An IRBuilder must be open."""
        for parallel in either(enough(self.lengths, ELEMENTS, self.known)):
            replace(self, parallel=parallel).in_order()

    def in_order(self) -> None:
        """Write vectors along the last axes, in parallel over the first ones."""
        lengths, first = self.lengths, len(self.lengths) - self._tail()
        if self.match.parts and not isinstance(lengths[-1], int):
            raise ScheduleError("a condition divides an open axis")
        with self._rows(range(first)) as place:
            start = 0
            for part in self.match.parts or (product_of(lengths[first:]),):
                for element in elements(part, self.knobs.width, self._number):
                    self._store([*place.values(), *unfold(lengths[first:], start + element)])
                start += part if isinstance(part, int) else 0

    @contextmanager
    def _rows(self, axes: Sequence[int]) -> Iterator[dict[int, Expr]]:
        """Write loops over some axes, the first ones in parallel; yield the index along each."""
        shared: list[int] = []
        for axis in axes:
            if math.prod(self.match.extents[taken] for taken in shared) < _ROWS:
                shared.append(axis)
        with ExitStack() as loops:
            index = loops.enter_context(self._jobs([self.lengths[axis] for axis in shared]))
            place = dict(zip(shared, index, strict=True))
            for axis in axes[len(shared) :]:
                place[axis] = loops.enter_context(T.serial(*self._range(self.lengths[axis])))
            yield place

    @contextmanager
    def _jobs(self, lengths: Sequence[Extent]) -> Iterator[list[Expr]]:
        """Write a loop over several axes, in parallel if that pays; yield the index along each."""
        count = product_of(lengths)
        single = isinstance(count, int) and count == 1
        loop = T.parallel if self.parallel and not single else T.serial
        with loop(*self._range(count)) as job, T.sblock(self.block.name_hint):
            sources: list[Any] = []
            for load in loads_of(self.block.body.value):
                if not any(load.source.same_as(source) for source in sources):
                    sources.append(load.source)
            T.reads(*map(whole, sources))
            T.writes(whole(self.block.body.buffer))
            yield [T.Bind(index) for index in unfold(lengths, job, job=True)]

    def _store(self, index: Sequence[Expr]) -> None:
        """Write the statement for one place."""
        store, axes = self.block.body, [axis.var for axis in self.block.iter_vars]
        values = list(zip(axes, index, strict=True))
        at = [substitute(place, values) for place in store.indices]
        T.buffer_store(store.buffer, substitute(store.value, values), at)

    def _tail(self) -> int:
        """Return how many last axes are written as one: only the first of them may be open."""
        tail = 1
        while not self.match.parts and tail < self.match.tail and self._is_fixed(-tail):
            tail += 1
        return tail

    def _is_fixed(self, axis: int) -> bool:
        return isinstance(self.lengths[axis], int)

    def _range(self, length: Extent) -> tuple[Expr, Expr]:
        return self._number(0), self._number(length)

    def _number(self, value: Extent) -> Expr:
        return number_of(value, self.block.iter_vars[0].var.ty.dtype)
