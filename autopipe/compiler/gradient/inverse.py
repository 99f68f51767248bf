"""Solve an access `A[f(i, k)]` for the iterations (i, k) of a loop nest that read an element.

Say `out[i]` sums `x[2*i + k] * w[k]` over k < 3, with i < 4. Element x[a] is read where
2*i + k = a. That is solved for i, the longer loop: i = (a - k) // 2, k stays a loop, and two guards
remain: 2*i + k == a, since a - k may be odd, and 0 <= i < 4.

Indices that map loops one to one, such as those of a reshape, are inverted as a whole by TVM
(`inverse_affine_iter_map`), and the inverse is verified by substitution. Other dimensions are
solved one by one: sums of loops times numbers, and remainders of such sums. Where an index is
neither, all of its loops stay free and a guard compares.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tvm import ir, tirx
from tvm.error import InternalError
from tvm.ir import Expr, Var
from tvm.sym import Analyzer, detect_iter_map, detect_linear_equation, inverse_affine_iter_map

from autopipe.compiler.find_nodes import is_among
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
    """An axis of a compute op with constant bounds."""

    var: Var
    first: int
    count: int

    @classmethod
    def of(cls, axis: tirx.IterVar) -> "Loop":
        """Return the loop of an axis. Raises ModelError if its extent is dynamic."""
        first, count = axis.dom.min, axis.dom.extent
        if not isinstance(first, tirx.IntImm) or not isinstance(count, tirx.IntImm):
            raise ModelError("a gradient needs sizes that are numbers")
        return cls(axis.var, int(first), int(count))

    @property
    def range(self) -> ir.Range:
        """The range as TVM's type."""
        dtype = read_dtype(self.var)
        first, count = (tirx.const(value, dtype) for value in (self.first, self.count))
        return ir.Range.from_min_extent(first, count)


@dataclass(frozen=True, slots=True)
class Shift:
    """A loop solved for with step 1: `i = place` within the loop's bounds."""

    loop: Loop
    low: int
    high: int
    """Bounds of `place`, both inclusive."""


@dataclass(slots=True)
class Solution:
    """The iterations that read one element."""

    values: dict[Var, Expr] = field(default_factory=dict)
    """The value of each solved loop, in terms of the element's place and the free loops."""
    free: list[Loop] = field(default_factory=list)
    """Loops without a solution: each of their iterations reads the element if the guards hold."""
    guards: list[Expr] = field(default_factory=list)
    """Further conditions of a read."""
    shifts: list[Shift] = field(default_factory=list)
    """Loops without guards of their bounds: reads beyond them must return zeros."""


def solve_indices(
    indices: Sequence[Expr], loops: Sequence[Loop], place: Sequence[Loop], shiftable: Sequence[Var]
) -> Solution:
    """Solve for the iterations that read the element at `place`.

    Bounds of the `shiftable` loops may stay unchecked. Where an index is not affine, such as one
    that comes from data, all of its loops stay free and a guard compares: correct but slow.
    """
    solver = _Solver(list(indices), list(loops), list(place))
    solver.solve_bijective()
    solver.solve_remaining()
    return solver.solution(shiftable)


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
        """Loops with solved values within their bounds by construction."""
        self._exact: set[int] = set()
        """Dimensions with an equation that holds by construction."""
        self._analyzer = Analyzer()
        for loop in (*loops, *place):
            self._analyzer.bind(loop.var, loop.range)

    def solve_bijective(self) -> None:
        """Solve groups of dimensions that map their loops one to one."""
        for group in self._group_dimensions():
            loop_variables = self._list_used_loops([self._indices[at] for at in group])
            if not loop_variables:
                continue
            iters = {var: self._loops[var].range for var in loop_variables}
            indices = [self._indices[at] for at in group]
            if any(map(has_reads, indices)):
                continue
            try:
                iter_map = detect_iter_map(indices, iters, check_level="bijective")
                if not len(iter_map.indices):
                    continue
                places: list[Any] = [self._place[at].var for at in group]
                inverse = dict(inverse_affine_iter_map(iter_map.indices, places).items())
            except InternalError:  # strides and windows are no such maps
                continue
            if self._is_inverse(inverse, dict(zip(places, indices, strict=True))):
                self._values.update(inverse)

    def _is_inverse(self, inverse: Mapping[Var, Expr], indices: Mapping[Var, Expr]) -> bool:
        """Prove by substitution that an inverse maps each element to the iteration that reads it.

        TVM's inverse is wrong where an index wraps: for `(i + 1) % 8` it is `i = a`.
        """
        composition = {var: substitute_variables(value, indices) for var, value in inverse.items()}
        return all(self._analyzer.can_prove_equal(e, var) for var, e in composition.items())

    def solve_remaining(self) -> None:
        """Solve each other dimension for its longest unsolved loop."""
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
        """Solve `index` = place for a loop with the coefficient `step`."""
        rest = substitute_variables(index, {var: tirx.const(0, read_dtype(var))})
        position = self._place_as(at, rest)
        way = position - rest if step > 0 else rest - position
        if abs(step) == 1:
            self._single.add(var)
        self._bind_value(var, tirx.floordiv(way, abs(step)))

    def _take_circular(self, var: Var, at: int, index: Expr, terms: tuple[int, int]) -> None:
        """Solve `index % period` = place for a loop with the coefficient `step`.

        For `(i + 1) % 8` with i < 24 that is i = (a - 1) % 8 + 8 * turn, with turn < 3.
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
        """Build the solution, with the guards that cannot be proven."""
        free = [loop for var, loop in self._loops.items() if var not in self._values]
        solution = Solution(dict(self._values), [*free, *self._turns])
        for var, value in solution.values.items():
            loop = self._loops[var]
            if var in self._inside:
                continue
            can_shift = var in self._single and not self._exact and not self._inside
            if can_shift and is_among(var, shiftable):
                shift = self._find_shift(loop, value)
                if shift is not None:
                    solution.shifts.append(shift)
                    continue
            solution.guards += self._list_open_guards(
                [value >= loop.first, value < loop.first + loop.count]
            )
        for at, index in enumerate(self._indices):
            if at in self._exact:
                continue
            position = substitute_variables(index, solution.values)
            solution.guards += self._list_open_guards(
                [tirx.EQ(position, self._place_as(at, position))]
            )
        return solution

    def _find_shift(self, loop: Loop, value: Expr) -> Shift | None:
        """Return the bounds of a loop's place if it exceeds those of the loop, otherwise None."""
        bound = self._analyzer.const_int_bound(value)
        low, high = int(bound.min_value), int(bound.max_value)
        inside = loop.first <= low and high < loop.first + loop.count
        return None if inside or high - low > _FAR else Shift(loop, low, high)

    def _list_open_guards(self, guards: Sequence[Expr]) -> list[Expr]:
        data = [guard for guard in guards if has_reads(guard)]  # opaque to the analyzer
        rest = [self._analyzer.simplify(guard) for guard in guards if not has_reads(guard)]
        return [*data, *(guard for guard in rest if not self._analyzer.can_prove(guard))]

    def _place_as(self, at: int, like: Expr) -> Expr:
        return cast_to(self._place[at].var, read_dtype(like))

    def _list_used_loops(self, indices: Sequence[Expr]) -> list[Var]:
        return [var for var in self._loops if any(has_variable(index, var) for index in indices)]

    def _group_dimensions(self) -> Iterator[list[int]]:
        """Yield groups of dimensions that share loops."""
        left = list(range(len(self._indices)))
        while left:
            group = [left.pop(0)]
            has_grown = True
            while has_grown:
                loop_variables = self._list_used_loops([self._indices[at] for at in group])
                neighbours = [
                    at
                    for at in left
                    if set(self._list_used_loops([self._indices[at]])) & set(loop_variables)
                ]
                group += neighbours
                left = [at for at in left if at not in neighbours]
                has_grown = bool(neighbours)
            yield sorted(group)


def _read_modulus(index: Expr) -> int:
    """Return the constant modulus of an index, 0 if it has none."""
    if not isinstance(index, tirx.FloorMod) or not isinstance(index.b, tirx.IntImm):
        return 0
    return max(0, int(index.b))


def _find_coefficient(index: Expr, var: Var) -> int:
    """Return the coefficient of a loop in an affine index, 0 if the index is not affine."""
    if has_reads(index):
        return 0
    terms = detect_linear_equation(index, [var])
    return int(terms[0]) if len(terms) and isinstance(terms[0], tirx.IntImm) else 0


def guard_value(value: Expr, guards: Sequence[Expr], zero: Expr) -> Expr:
    """Select a value where all guards hold, and zero elsewhere."""
    for guard in guards:
        value = tirx.if_then_else(guard, value, zero)
    return value
