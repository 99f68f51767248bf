"""Writes the padding of an operand line by line, without a test for each element.

TVM writes `if_then_else(inside, x[...], 0)` for every element. Here a whole line is inside or is
border, so the test is made once a line, and the line is written in vectors.

Example: an image [56, 56, 64] with a border of one pixel, a line being the 58 x 64 elements of a
row of the result.

    for row in range(58):
        if 1 <= row < 57:
            line[0:64]      = 0                     # left border
            line[64:3648]   = x[row - 1, 0:56, :]
            line[3648:3712] = 0                     # right border
        else:
            line[0:3712]    = 0
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm.ir import Expr
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.sym import detect_clip_bound
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    Extent,
    extent_of,
    is_large_enough,
    lengths_of,
    product_of,
    simplify_extent,
)
from autopipe.schedules.analysis.expressions import (
    is_branch,
    replace_variables,
    unravel_index,
    write_branches,
    write_element_loops,
)
from autopipe.schedules.loop_writer import job_loop, list_read_buffers
from autopipe.schedules.parallel_work import ELEMENTS

Bounds: TypeAlias = tuple[Extent, Extent]


@dataclass(frozen=True, slots=True)
class Padding:
    """A block that computes values inside a rectangle and a constant border around it."""

    name: str
    """Name of the block."""
    target: tvm.ir.Var
    """The buffer that it writes."""
    axes: Sequence[tvm.ir.Var]
    """Its axes, one for each axis of the buffer."""
    extents: tuple[Extent, ...]
    """Extents of the axes, with the border."""
    inside: tuple[Bounds | None, ...]
    """For each axis the first index inside the border and the first index behind that; None for an
    axis without a border."""
    value: Expr
    """The value inside."""
    border: Expr
    """The value of the border."""

    @classmethod
    def of(cls, block: SBlock) -> "Padding | None":
        """Return the padding that a block computes, or None if it does something else."""
        choice, extents = getattr(block.body, "value", None), lengths_of(block)
        if choice is None or not is_branch(choice):
            return None
        condition, value, border = choice.args
        axes = [axis.var for axis in block.iter_vars]
        plain = all(i.same_as(axis) for i, axis in zip(block.body.indices, axes, strict=True))
        inside = _parse_bounds(condition, axes, extents)
        if inside is None or not plain or list_loads(border):
            return None
        return cls(block.name_hint, block.body.buffer, axes, extents, inside, value, border)

    @property
    def line(self) -> int:
        """Position of the axis where a line begins: the last one with a border or a dynamic extent.

        A line over several axes with a dynamic inner one cannot be written in vectors: the place of
        a vector in it takes a division by a dynamic extent.
        """
        axes = zip(self.inside, self.extents, strict=True)
        ends = (b is not None or not isinstance(n, int) for b, n in axes)
        return max(i for i, begins in enumerate(ends) if begins)

    def write(self, width: int) -> tvm.tirx.Stmt:
        """Return the loops over all lines, which write vectors of `width` elements."""
        with IRBuilder() as builder:
            for is_parallel in write_branches(is_large_enough(self.extents, ELEMENTS)):
                self._write_lines(width, parallel=is_parallel)
        return builder.get()

    def _write_lines(self, width: int, *, parallel: bool) -> None:
        before = self.extents[: self.line]
        buffers = list_read_buffers([self.value]), [self.target]
        with job_loop(self.name, before, self._dtype, buffers, parallel=parallel) as first:
            self.write_line(first, lambda index: (self.target, [*first, *index]), width)

    def write_line(
        self,
        first: Sequence[Expr],
        where: Callable[[Sequence[Expr]], tuple[tvm.ir.Var, Sequence[Expr]]],
        width: int,
    ) -> None:
        """Write the loops over one line.

        Args:
            first: The indices of the line, along the axes before `line`.
            where: Takes the other indices of an element; returns a buffer and the indices there.
            width: Elements in a vector.
        """
        inner = product_of(self.extents[self.line + 1 :])
        end = product_of(self.extents[self.line :])
        outside: list[tuple[Extent, Extent, Expr]] = [(0, end, self.border)]
        parts: list[tuple[Extent, Extent, Expr]] = [(0, end, self.value)]
        if (bounds := self.inside[self.line]) is not None:
            low, high = (bound * inner for bound in bounds)
            parts = [(0, low, self.border), (low, high, self.value), (high, end, self.border)]

        def write(parts: Sequence[tuple[Extent, Extent, Expr]]) -> None:
            for start, stop, value in parts:
                for element in write_element_loops(stop - start, width, self._dtype):
                    index = unravel_index(self.extents[self.line :], start + element)
                    values = list(zip(self.axes, [*first, *index], strict=True))
                    buffer, at = where(index)
                    T.buffer_store(buffer, replace_variables(value, values), at)

        tests = self._build_inside_tests(first)
        if not tests:
            write(parts)
            return
        with T.If(tvm.tirx.all(*tests)):
            with T.Then():
                write(parts)
            with T.Else():
                write(outside)

    def _build_inside_tests(self, first: Sequence[Expr]) -> list[Expr]:
        """Return the conditions under which a line is not all border."""
        tests = []
        for index, bounds, extent in zip(first, self.inside, self.extents, strict=False):
            if bounds is None:
                continue
            low, high = bounds
            tests += [] if isinstance(low, int) and low == 0 else [index >= low]
            is_static = isinstance(high, int) and isinstance(extent, int)
            tests += [index < high] if not is_static or high < extent else []
        return tests

    @property
    def _dtype(self) -> str:
        return str(self.axes[0].ty.dtype)


def _parse_bounds(
    condition: Expr, axes: Sequence[tvm.ir.Var], extents: Sequence[Extent]
) -> tuple[Bounds | None, ...] | None:
    """Parse a condition as bounds of each axis; None if it has another form.

    Example: `i > 0 and i <= 5 and j < 7` with extents (7, 8) gives ((1, 6), (0, 7)). An axis of
    dynamic extent has at most one bound on each side, and something is inside. A bound may be the
    larger of two: TVM writes `j <= steps or j <= 1` where there is at least one step.
    """
    limits = detect_clip_bound(
        tvm_ffi.structural_map(condition, (tvm.tirx.Or, _join_limits)), list(axes)
    )
    bounds: list[Bounds | None] = []
    for low, high, extent in zip(limits[::2], limits[1::2], extents, strict=False):
        first = 0 if low is None else extent_of(low)
        end = extent if high is None else simplify_extent(extent_of(high + 1))
        first = max(first, 0) if isinstance(first, int) else first
        end = min(end, extent) if isinstance(end, int) and isinstance(extent, int) else end
        if isinstance(first, int) and isinstance(end, int) and first >= end:
            return None
        is_static = all(isinstance(bound, int) for bound in (first, end, extent))
        is_whole = (first, end) == (0, extent) if is_static else low is None and high is None
        bounds.append(None if is_whole else (first, end))
    return tuple(bounds) if any(bounds) else None


def _join_limits(either: tvm.tirx.Or) -> Expr:
    """Join two upper bounds of an axis, of which one has to hold, to their maximum."""
    pair = either.a, either.b
    if not all(isinstance(part, tvm.tirx.LE) for part in pair) or not pair[0].a.same_as(pair[1].a):
        return either
    return pair[0].a < tvm.tirx.max(pair[0].b + 1, pair[1].b + 1)
