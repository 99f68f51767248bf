"""Which iterations of a loop nest read an element: an access `A[f(i, k)]` is solved for i and k.

Say `out[i]` sums `x[2*i + k] * w[k]` over k < 3, with i < 4. Element x[a] is read where
2*i + k = a. That is solved for i, the longer loop: i = (a - k) // 2, k stays a loop, and two guards
remain: 2*i + k == a, since a - k may be odd, and 0 <= i < 4.

Indices that map loops one to one, such as those of a reshape, are inverted as a whole by TVM
(`inverse_affine_iter_map`), whose answer is proven by substitution. What is left is solved
dimension by dimension: sums of loops times numbers, and remainders of such sums. Where an index is
neither, all loops in it go on and a guard compares.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tvm import ir, tirx
from tvm.error import InternalError
from tvm.ir import Expr, Var
from tvm.sym import Analyzer, detect_iter_map, detect_linear_equation, inverse_affine_iter_map

from autopipe.compiler.gradient.expressions import (
    cast_to,
    has_reads,
    has_variable,
    read_dtype,
    substitute_variables,
)
from autopipe.compiler.loops.exact_divisions import write_out_division
from autopipe.errors import ModelError

_FAR: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a compute."""

    var: Var
    first: int
    count: int

    @classmethod
    def of(cls, axis: tirx.IterVar) -> "Loop":
        """Return the loop of an axis. Raises ModelError if its length is no number."""
        first, count = axis.dom.min, axis.dom.extent
        if not isinstance(first, tirx.IntImm) or not isinstance(count, tirx.IntImm):
            raise ModelError("a gradient needs sizes that are numbers")
        return cls(axis.var, int(first), int(count))

    @property
    def range(self) -> ir.Range:
        """What it goes along."""
        dtype = read_dtype(self.var)
        first, count = (tirx.const(value, dtype) for value in (self.first, self.count))
        return ir.Range.from_min_extent(first, count)


@dataclass(frozen=True, slots=True)
class Shift:
    """A loop that was solved for with step 1: `i = place` inside of the loop's bounds."""

    loop: Loop
    low: int
    high: int
    """What `place` reaches, both included."""


@dataclass(slots=True)
class Solution:
    """The iterations that read one element."""

    values: dict[Var, Expr] = field(default_factory=dict)
    """Each loop that was solved for, by the element's place and the loops that are free."""
    free: list[Loop] = field(default_factory=list)
    """Loops that go on: each of their iterations reads the element, as far as guards say."""
    guards: list[Expr] = field(default_factory=list)
    """What has to hold besides."""
    shifts: list[Shift] = field(default_factory=list)
    """Loops whose bounds are no guards yet: who reads beyond them has to find zeros there."""


def solve_indices(
    indices: Sequence[Expr], loops: Sequence[Loop], place: Sequence[Loop], shiftable: Sequence[Var]
) -> Solution:
    """Return which iterations read the element at `place`.

    Bounds of the `shiftable` loops may stay open. Where an index is no sum of loops times numbers,
    as one that comes from data, all loops in it go on and a guard compares: right, and slow.
    """
    found = _Solver(list(indices), list(loops), list(place))
    found.solve_bijective()
    found.solve_remaining()
    return found.solution(shiftable)


class _Solver:
    """Solves one access."""

    def __init__(self, indices: list[Expr], loops: list[Loop], place: list[Loop]) -> None:
        self._indices = indices
        self._loops = {loop.var: loop for loop in loops}
        self._place = place
        self._values: dict[Var, Expr] = {}
        self._single: set[Var] = set()
        self._turns: list[Loop] = []
        self._inside: set[Var] = set()
        """Loops whose values are inside of their bounds by the way they were solved."""
        self._exact: set[int] = set()
        """Dimensions whose equation holds by the way it was solved."""
        self._analyzer = Analyzer()
        for loop in (*loops, *place):
            self._analyzer.bind(loop.var, loop.range)

    def solve_bijective(self) -> None:
        """Solve the dimensions whose loops are in no other and are mapped one to one."""
        for group in self._group_dimensions():
            used = self._list_used_loops([self._indices[at] for at in group])
            if not used:
                continue
            iters = {var: self._loops[var].range for var in used}
            indices = [self._indices[at] for at in group]
            if any(map(has_reads, indices)):
                continue
            try:
                found = detect_iter_map(indices, iters, check_level="bijective")
                if not len(found.indices):
                    continue
                places: list[Any] = [self._place[at].var for at in group]
                inverse = dict(inverse_affine_iter_map(found.indices, places).items())
            except InternalError:  # strides and windows are no such maps
                continue
            if self._is_inverse(inverse, dict(zip(places, indices, strict=True))):
                self._values.update(inverse)

    def _is_inverse(self, inverse: Mapping[Var, Expr], indices: Mapping[Var, Expr]) -> bool:
        """Prove by substitution that an inverse leads from each element to who reads it.

        TVM's is wrong where an index wraps: of `(i + 1) % 8` it is `i = a`.
        """
        there_and_back = {
            var: substitute_variables(value, indices) for var, value in inverse.items()
        }
        return all(self._analyzer.can_prove_equal(e, var) for var, e in there_and_back.items())

    def solve_remaining(self) -> None:
        """Solve each other dimension for the longest loop in it that is not solved yet."""
        for at, index in enumerate(self._indices):
            left = substitute_variables(index, self._values)
            period = _read_modulus(left)
            inner = left.a if period else left
            steps = {var: _find_coefficient(inner, var) for var in self._list_used_loops([inner])}
            steps = {var: step for var, step in steps.items() if step}
            if steps:
                var = max(steps, key=lambda each: self._loops[each].count)
                if period:
                    self._take_circular(var, at, inner, (steps[var], period))
                else:
                    self._solve_loop(var, at, left, steps[var])

    def _solve_loop(self, var: Var, at: int, index: Expr, step: int) -> None:
        """Solve `index` = place for a loop that it has `step` times."""
        rest = substitute_variables(index, {var: tirx.const(0, read_dtype(var))})
        here = self._place_as(at, rest)
        way = here - rest if step > 0 else rest - here
        if abs(step) == 1:
            self._single.add(var)
        self._bind_value(var, tirx.floordiv(way, abs(step)))

    def _take_circular(self, var: Var, at: int, index: Expr, terms: tuple[int, int]) -> None:
        """Solve `index % period` = place for a loop that the index has `step` times.

        Of `(i + 1) % 8` for i < 24 that is i = (a - 1) % 8 + 8 * turn, with turn < 3.
        """
        (step, period), loop = terms, self._loops[var]
        rest = substitute_variables(index, {var: tirx.const(0, read_dtype(var))})
        common = math.gcd(step, period)
        every = period // common
        factor = pow(step // common, -1, every) if every > 1 else 0
        factor = factor - every if 2 * factor > every else factor
        way = tirx.floordiv(self._place_as(at, rest) - rest, common)
        dividend = self._analyzer.simplify(way * factor - loop.first)
        value = write_out_division(tirx.floormod(dividend, every), self._analyzer) + loop.first
        if loop.count > every:
            turn = Loop(Var(f"{var.name}_turn", read_dtype(var)), 0, -(-loop.count // every))
            self._analyzer.bind(turn.var, turn.range)
            self._turns.append(turn)
            value += turn.var * every
        if loop.count % every == 0:
            self._inside.add(var)
        if common == 1 and self._place[at].count <= period:
            self._exact.add(at)
        self._bind_value(var, value)

    def _bind_value(self, var: Var, value: Expr) -> None:
        value = self._analyzer.simplify(value)
        self._values = {
            other: self._analyzer.simplify(substitute_variables(known, {var: value}))
            for other, known in self._values.items()
        }
        self._values[var] = value

    def solution(self, shiftable: Sequence[Var]) -> Solution:
        """Return what is known, with the guards that do not hold anyway."""
        free = [loop for var, loop in self._loops.items() if var not in self._values]
        found = Solution(dict(self._values), [*free, *self._turns])
        for var, value in found.values.items():
            loop = self._loops[var]
            if var in self._inside:
                continue
            can_shift = var in self._single and not self._exact and not self._inside
            if can_shift and any(var.same_as(each) for each in shiftable):
                shift = self._find_shift(loop, value)
                if shift is not None:
                    found.shifts.append(shift)
                    continue
            found.guards += self._list_open_guards(
                [value >= loop.first, value < loop.first + loop.count]
            )
        for at, index in enumerate(self._indices):
            if at in self._exact:
                continue
            here = substitute_variables(index, found.values)
            found.guards += self._list_open_guards([tirx.EQ(here, self._place_as(at, here))])
        return found

    def _find_shift(self, loop: Loop, value: Expr) -> Shift | None:
        """Return how far a loop's place goes beyond its bounds; None if it does not."""
        bound = self._analyzer.const_int_bound(value)
        low, high = int(bound.min_value), int(bound.max_value)
        inside = loop.first <= low and high < loop.first + loop.count
        return None if inside or high - low > _FAR else Shift(loop, low, high)

    def _list_open_guards(self, guards: Sequence[Expr]) -> list[Expr]:
        data = [guard for guard in guards if has_reads(guard)]  # which the analyzer can not read
        rest = [self._analyzer.simplify(guard) for guard in guards if not has_reads(guard)]
        return [*data, *(guard for guard in rest if not self._analyzer.can_prove(guard))]

    def _place_as(self, at: int, like: Expr) -> Expr:
        return cast_to(self._place[at].var, read_dtype(like))

    def _list_used_loops(self, indices: Sequence[Expr]) -> list[Var]:
        return [var for var in self._loops if any(has_variable(index, var) for index in indices)]

    def _group_dimensions(self) -> Iterator[list[int]]:
        """Yield the dimensions that share loops."""
        left = list(range(len(self._indices)))
        while left:
            group = [left.pop(0)]
            grown = True
            while grown:
                used = self._list_used_loops([self._indices[at] for at in group])
                more = [
                    at for at in left if set(self._list_used_loops([self._indices[at]])) & set(used)
                ]
                group += more
                left = [at for at in left if at not in more]
                grown = bool(more)
            yield sorted(group)


def _read_modulus(index: Expr) -> int:
    """Return the number that an index is the remainder by, 0 if it is none."""
    if not isinstance(index, tirx.FloorMod) or not isinstance(index.b, tirx.IntImm):
        return 0
    return max(0, int(index.b))


def _find_coefficient(index: Expr, var: Var) -> int:
    """Return how often an index has a loop, 0 if it has it otherwise than as a term."""
    if has_reads(index):
        return 0
    terms = detect_linear_equation(index, [var])
    return int(terms[0]) if len(terms) and isinstance(terms[0], tirx.IntImm) else 0


def guard_value(value: Expr, guards: Sequence[Expr], zero: Expr) -> Expr:
    """Return a value where all guards hold, and zero elsewhere."""
    for guard in guards:
        value = tirx.if_then_else(guard, value, zero)
    return value
