"""Template for functions of open sizes that reduce nothing: elementwise work, joins, transposes.

It does what `elementwise` and `transpose` do to static functions, but writes the loops itself: no
number of elements in a vector or a tile divides an open size.

Examples, with vectors of 16:

    for row in parallel(height):                        # y = relu(x), [1, height, width, 3]
        for step in range(width * 3 // 16):             # the last two axes are as good as one
            y[row, 16 * step : 16 * step + 16] = relu(x[row, 16 * step : 16 * step + 16])
        for rest in range(width * 3 % 16):
            ...                                         # one element after the other

    for row, tile in parallel(height, (width + 7) // 8):     # NHWC to NCHW, `width` at least 8
        w = min(8 * tile, width - 8)                         # the last tile overlaps
        for c in range(channels / 8):
            y[8 * c : 8 * c + 8, row, w : w + 8] = x[row, w : w + 8, 8 * c : 8 * c + 8]
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
from tvm.ir import Expr
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.dynamic_sizes.kernel_sizes import OpenSizes, is_at_least, known_of
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import (
    Extent,
    enough,
    lengths_of,
    number_of,
    parts_of,
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
from autopipe.schedules.templates.transpose import SHORT, TRANSPOSE

"""Static functions are for `elementwise` and `transpose`, which are tuned."""

_ROWS: Final = 16
"""Iterations of the outer loops that are enough to divide among threads."""

_SIDE: Final = 8
"""Elements along a side of a tile of a transpose."""


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
    along: int | None
    """Axis of the output along which a read is contiguous, if it is not the last; else None."""
    interleaved: bool
    """Whether that axis or the last one is so short that LLVM can interleave along the other."""


@dataclass(frozen=True, slots=True)
class MovementVectors:
    """The knobs."""

    width: int
    """Elements in a vector where memory is read in order."""
    side: int
    """Elements along a side of a tile where it is not."""


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
        crossing, extents = TRANSPOSE.match(sch), movement.extents
        if not all(_evenly(read, extents) for read in movement.reads):
            return None  # enlarged images, say: LLVM does better without vectors
        along, interleaved = None, False
        if crossing is not None:
            inner, outer = crossing.inner, crossing.along
            if (inner.extent, outer.extent) == (extents[-1], extents[outer.axis]):
                along, interleaved = outer.axis, crossing.interleaved
        return OpenMovement(
            extents, movement.bits, movement.parts, movement.tail, along, interleaved,
        )  # fmt: skip

    def settings(self, match: OpenMovement, hardware: HardwareParams) -> Iterator[MovementVectors]:
        """Yield vectors of one and two registers and half of one, and tiles of three sizes."""
        lanes = hardware.lanes(match.bits)
        crossed = match.along is not None and not match.interleaved
        for width in (lanes, 2 * lanes, lanes // 2):
            if width:
                for side in (_SIDE, 2 * _SIDE, _SIDE // 2) if crossed else (1,):
                    yield MovementVectors(width, side)

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
            replace(self, parallel=parallel).in_some_order()

    def in_some_order(self) -> None:
        """Write the loops in the order that suits the function."""
        along, last = self.match.along, len(self.lengths) - 1
        if along is None:
            self._in_order()
            return
        short = [axis for axis in (last, along) if self._is_short(axis)]
        if self.match.interleaved and short:
            self._interleaved(short[0], along if short[0] == last else last)
        else:
            self._crossed(along, last)

    def _in_order(self) -> None:
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

    def _interleaved(self, short: int, long: int) -> None:
        """Write a short axis unrolled inside the loop over a long one."""
        others = [axis for axis in range(len(self.lengths)) if axis not in (short, long)]
        with (
            self._rows(others) as place,
            T.serial(*self._range(self.lengths[long])) as place[long],
            T.unroll(*self._range(self.lengths[short])) as place[short],
        ):
            self._store([place[axis] for axis in sorted(place)])

    def _crossed(self, along: int, last: int) -> None:
        """Write tiles, and single elements where a size is too small for a tile."""
        sides = {}
        for axis in (along, last):
            length = self.lengths[axis]
            sides[axis] = (
                min(length, self.knobs.side) if isinstance(length, int) else self.knobs.side
            )
        checks = [
            self.lengths[axis] >= side
            for axis, side in sides.items()
            if not isinstance(self.lengths[axis], int)
            and not is_at_least(self.lengths[axis], side, self.known)
        ]
        if not checks:
            self._tiles(sides)
            return
        for fits in either(tvm.tirx.all(*checks)):
            self._tiles(sides if fits else dict.fromkeys(sides, 1))

    def _tiles(self, sides: Mapping[int, int]) -> None:
        """Write the loops over tiles; the last tile along an axis overlaps the one before it.

        `sides` are those of a tile, by axis: the one along which a read is contiguous, then the
        last one.
        """
        along, last = sides
        others = [axis for axis in range(last) if axis != along]
        bands, strips = (parts_of(self.lengths[axis], side) for axis, side in sides.items())
        with self._jobs([*(self.lengths[axis] for axis in others), bands]) as (*index, band):
            place = dict(zip(others, index, strict=True))
            with T.serial(*self._range(strips)) as strip:
                first = {
                    axis: T.Bind(tvm.tirx.min(at * side, self._number(self.lengths[axis] - side)))
                    for (axis, side), at in zip(sides.items(), (band, strip), strict=True)
                }
                with (
                    T.unroll(*self._range(sides[along])) as step,
                    T.vectorized(*self._range(sides[last])) as lane,
                ):
                    place[along], place[last] = first[along] + step, first[last] + lane
                    self._store([place[axis] for axis in sorted(place)])

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

    def _is_short(self, axis: int) -> bool:
        length = self.lengths[axis]
        return isinstance(length, int) and length <= SHORT

    def _range(self, length: Extent) -> tuple[Expr, Expr]:
        return self._number(0), self._number(length)

    def _number(self, value: Extent) -> Expr:
        return number_of(value, self.block.iter_vars[0].var.ty.dtype)
