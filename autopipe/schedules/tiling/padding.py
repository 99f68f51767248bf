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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
from tvm.ir import Expr
from tvm.s_tir import SBlock
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    Extent,
    extent_of,
    is_large_enough,
    lengths_of,
    product_of,
)
from autopipe.schedules.analysis.expressions import (
    count_occurrences,
    is_branch,
    replace_variables,
    unravel_index,
    write_branches,
    write_element_loops,
)
from autopipe.schedules.loop_writer import job_loop
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
        buffers = [one.source for one in list_loads(self.value)], [self.target]
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
    bounds: list[Bounds] = [(0, extent) for extent in extents]
    for part in _split_conjunction(condition):
        axis_limit = _parse_limit(part, axes)
        if axis_limit is None:
            return None
        at, below, limit = axis_limit
        low, high = bounds[at]
        if below:
            bounds[at] = low, _choose_tighter_bound(high, limit, min)
        else:
            bounds[at] = _choose_tighter_bound(low, limit, max), high
    whole_axes = [(0, extent) for extent in extents]
    if any(isinstance(low, int) and isinstance(high, int) and low >= high for low, high in bounds):
        return None
    found_bounds = tuple(
        None if _has_same_bounds(one, all_of) else one
        for one, all_of in zip(bounds, whole_axes, strict=True)
    )
    return found_bounds if any(found_bounds) else None


def _parse_limit(part: Expr, axes: Sequence[tvm.ir.Var]) -> tuple[int, bool, Extent] | None:
    """Parse a comparison as (axis, whether it is an upper bound, limit), None for other forms."""
    if isinstance(part, tvm.tirx.Or):
        first, second = (_parse_limit(each, axes) for each in (part.a, part.b))
        if first is None or second is None or first[:2] != second[:2] or not first[1]:
            return None
        return (*first[:2], extent_of(tvm.tirx.max(first[2], second[2])))
    if not isinstance(part, tvm.tirx.LT | tvm.tirx.LE):
        return None
    for at, axis in enumerate(axes):
        for side, constant in ((part.a, part.b), (part.b, part.a)):
            if side.same_as(axis) and not any(count_occurrences(constant, each) for each in axes):
                below, strict = side.same_as(part.a), isinstance(part, tvm.tirx.LT)
                limit = extent_of(constant)
                return at, below, limit + int(strict != below)
    return None


def _choose_tighter_bound(
    bound: Extent, limit: Extent, choose: Callable[[int, int], int]
) -> Extent:
    """Return the tighter of two bounds; a dynamic limit replaces the other."""
    if isinstance(bound, int) and isinstance(limit, int):
        return choose(bound, limit)
    return limit


def _has_same_bounds(first: Bounds, second: Bounds) -> bool:
    return all(
        left == right if isinstance(left, int) and isinstance(right, int) else left is right
        for left, right in zip(first, second, strict=True)
    )


def _split_conjunction(condition: Expr) -> Iterator[Expr]:
    """Yield the parts of a condition that are joined by `and`."""
    if isinstance(condition, tvm.tirx.And):
        yield from _split_conjunction(condition.a)
        yield from _split_conjunction(condition.b)
    else:
        yield condition
