"""Find the iterations at which indices of a loop change form: clamps, guards and wraps.

A minimum, a maximum and a comparison have one outcome on each side of a border, and a quotient is
constant between two borders. `codegen/split_at_borders.py` splits loops there.

Example: in a loop over 0 <= i < 512, `min(i + 3, 511)` is `i + 3` for i < 509, and the remainder
`(i + 500) % 512` is `i - 12` from 12 on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, TypeVar

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import GE, GT, LE, LT, For, IntImm, Max, Min, PrimFunc, Stmt

from autopipe.compiler.find_nodes import find_nodes, is_among

_SIZE: Final = 1 << 16
"""Assumed upper bound of dynamic sizes."""

_TURNS: Final = 2
"""Most wraps of a divided index in a loop that is split for it."""

_INDICES: Final = {"int32", "int64"}
COMPARISONS: Final = (LT, LE, GT, GE)
_REMAINDERS: Final = (tirx.FloorMod, tirx.Mod)
_DIVISIONS: Final = (*_REMAINDERS, tirx.FloorDiv, tirx.Div)
SIDES: Final = (*COMPARISONS, Min, Max)
"""Nodes with different outcomes on the sides of a border."""

_CHOICES: Final = (*SIDES, *_DIVISIONS)


def find_choices(axis: Var, part: "Iterations", ranges: "Ranges") -> list["IndexForm"]:
    """Find expressions with one form in most of some iterations of a loop over `axis`."""
    return _Scope.of(axis, part, ranges).choices()


def has_choices(body: Stmt) -> bool:
    """Tell whether a body has indices that may have several forms."""
    choices = find_nodes(body, _CHOICES)
    return any(map(is_of_indices, choices))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of the variables of a function."""

    known: Analyzer
    likely: Analyzer
    """With sizes from 0 to `_SIZE`, to estimate on which side of a border most of a loop is."""

    @classmethod
    def of(cls, function: PrimFunc) -> "Ranges":
        """Collect the ranges of all loops, and assumed ranges of dynamic sizes."""
        ranges = cls(Analyzer(), Analyzer())

        def bind_loop(loop: For) -> None:
            if not (is_number(loop.min) and is_number(loop.extent)):
                bind_size(loop.loop_var)
                return
            for analyzer in (ranges.known, ranges.likely):
                loop_range = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
                analyzer.bind(loop.loop_var, loop_range)

        def bind_size(var: Var) -> None:
            dtype = str(var.ty)
            if dtype in _INDICES:
                size_range = tvm.ir.Range(tirx.const(0, dtype), tirx.const(_SIZE, dtype))
                ranges.likely.bind(var, size_range)

        for param in function.params:
            bind_size(param)
        tvm_ffi.structural_walk(
            function.body, [(For, bind_loop), (tirx.Bind, lambda bind: bind_size(bind.var))]
        )
        return ranges


@dataclass(frozen=True, slots=True)
class Iterations:
    """A range of iterations of a loop, and its body."""

    first: Expr
    end: Expr
    body: Stmt

    def loop(self, old: For, analyzer: Analyzer) -> For:
        """Build a loop over these iterations."""
        extent = analyzer.simplify(self.end - self.first)
        return For(old.loop_var, self.first, extent, old.kind, self.body, None, old.annotations)

    def most(self, analyzer: Analyzer) -> int:
        """Return the upper bound of the number of iterations."""
        return int(analyzer.const_int_bound(self.end - self.first).max_value)

    def decided(self, choices: Sequence["IndexForm"]) -> "Iterations":
        """Restrict iterations to those where choices have their outcomes; substitute these."""
        first, end = self.first, self.end
        for choice in choices:
            first = reduce(tirx.max, choice.begins, first)
            end = reduce(tirx.min, choice.ends, end)

        def outcome(node: Expr) -> Expr:
            return next((choice.outcome for choice in choices if choice.node.same_as(node)), node)

        return Iterations(first, end, tvm_ffi.structural_map(self.body, (_CHOICES, outcome)))


@dataclass(frozen=True, slots=True)
class IndexForm:
    """An expression with one form in most of a loop."""

    node: Any
    outcome: Expr
    """The form of the expression there."""
    begins: Sequence[Expr]
    """Lower bounds of the iterations with that form."""
    ends: Sequence[Expr]
    """Exclusive upper bounds of the iterations with that form."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The iteration of a loop at which an expression changes sign."""

    falls: bool
    """Whether the expression becomes negative."""
    least: Expr
    """The first iteration after the change, as minimum and maximum over the inner loops."""
    most: Expr

    @property
    def begins(self) -> list[Expr]:
        """The iteration from which on the expression is negative, if it falls."""
        return [self.most] if self.falls else []

    @property
    def ends(self) -> list[Expr]:
        """The iteration before which the expression is negative, if it rises."""
        return [] if self.falls else [self.least]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The variables of indices in a part of a loop."""

    axis: Var
    """The variable of the loop."""
    part: Iterations
    ranges: Ranges
    binds: list[tuple[Var, Expr]] = field(default_factory=list)
    """Variables bound in the loop."""
    inner: list[For] = field(default_factory=list)
    """Inner loops."""

    @classmethod
    def of(cls, axis: Var, part: Iterations, ranges: Ranges) -> "_Scope":
        """Collect the bindings and inner loops of a part."""
        scope = cls(axis, part, ranges)

        def bind(node: tirx.Bind) -> None:
            scope.binds.append((node.var, node.value))

        tvm_ffi.structural_walk(part.body, [(tirx.Bind, bind), (For, scope.inner.append)])
        return scope

    def choices(self) -> list[IndexForm]:
        """List the choices with one outcome in most of the part."""
        nodes = find_nodes(self.part.body, _CHOICES)
        forms = (self._analyze_choice(node) for node in nodes if is_of_indices(node))
        return [form for form in forms if form is not None]

    def _analyze_choice(self, node: Expr) -> IndexForm | None:
        """Find the usual outcome of a choice, or None if its border is not affine in the loop."""
        if isinstance(node, _DIVISIONS):
            return self._analyze_division(node)
        sign = self._inline_bindings(build_difference(node))
        change = self._find_sign_change(sign)
        if change is None:
            return None
        ahead = change.least + change.most - self.part.first - self.part.end
        middle = self.ranges.likely.const_int_bound(ahead)
        before = int(middle.min_value) + int(middle.max_value) > 0
        begins, ends = ([], [change.least]) if before else ([change.most], [])
        return IndexForm(node, _choose_outcome(node, is_first=before != change.falls), begins, ends)

    def _analyze_division(self, node: Expr) -> IndexForm | None:
        """Find the usual form of a quotient or remainder, or None if it takes many quotients."""
        size = int(node.b) if isinstance(node.b, IntImm) else 0
        dividend = self._inline_bindings(node.a)
        linear = detect_linear_equation(dividend, [self.axis])
        if size <= 0 or len(linear) == 0:
            return None
        places = (self.part.first, self.part.end - 1)
        bounds = [self.ranges.likely.const_int_bound(linear[0] * i + linear[1]) for i in places]
        least = min(int(bound.min_value) for bound in bounds)
        most = max(int(bound.max_value) for bound in bounds)
        quotient = (least + most) // 2 // size
        if most // size - least // size > _TURNS or quotient < 0:
            return None
        above = self._find_sign_change(quotient * size - 1 - dividend)
        below = self._find_sign_change(dividend - (quotient + 1) * size)
        if above is None or below is None:
            return None
        constant = tirx.const(quotient, str(node.ty))
        outcome = node.a - quotient * size if isinstance(node, _REMAINDERS) else constant
        return IndexForm(node, outcome, above.begins + below.begins, above.ends + below.ends)

    def _find_sign_change(self, sign: Expr) -> _Change | None:
        """Find the sign change of an expression along the loop, or None if it is not affine."""
        linear = detect_linear_equation(sign, [self.axis])
        if len(linear) == 0 or not isinstance(linear[0], IntImm) or int(linear[0]) == 0:
            return None
        step, analyzer = int(linear[0]), self.ranges.known
        borders = [
            analyzer.simplify(find_border(step, rest)) for rest in self._find_extremes(linear[1])
        ]
        if not borders:
            return None
        least, most = borders if step < 0 else reversed(borders)
        return _Change(step < 0, least, most)

    def _find_extremes(self, rest: Expr) -> list[Expr]:
        """Return minimum and maximum over all inner loops; an empty list if unknown."""
        axes = [loop.loop_var for loop in self.inner]
        parts = detect_linear_equation(rest, axes) if axes else [rest]
        if len(parts) == 0 or not self._is_outside(parts[-1]):
            return []
        least = most = parts[-1]
        for factor, inner_loop in zip(parts[:-1], self.inner, strict=True):
            if not all(map(is_number, (factor, inner_loop.min, inner_loop.extent))):
                return []
            ends = [
                int(factor) * int(at)
                for at in (inner_loop.min, inner_loop.min + inner_loop.extent - 1)
            ]
            least, most = least + min(ends), most + max(ends)
        return [least, most]

    def _is_outside(self, expr: Expr) -> bool:
        """Tell whether an expression is loop-invariant and loads nothing."""
        loop_variables = [self.axis, *(var for var, _ in self.binds)]
        nodes = find_nodes(expr, (TensorLoad, Call, tirx.Let, Var))
        return all(isinstance(node, Var) and not is_among(node, loop_variables) for node in nodes)

    def _inline_bindings(self, expr: Expr) -> Expr:
        """Substitute the variables that are bound in the loop."""

        def value(var: Var) -> Expr:
            bound = (value for variable, value in self.binds if variable.same_as(var))
            return next(map(self._inline_bindings, bound), var)

        return tvm_ffi.structural_map(expr, (Var, value)) if self.binds else expr


def build_difference(node: Expr) -> Expr:
    """Return a difference that is negative where a comparison holds or the first operand wins."""
    if isinstance(node, LT):
        return node.a - node.b
    if isinstance(node, GT):
        return node.b - node.a
    least, most = (node.a, node.b) if isinstance(node, LE | Min) else (node.b, node.a)
    return least - most - 1


_Number = TypeVar("_Number", int, Expr)


def find_border(step: int, rest: _Number) -> _Number:
    """Return the first iteration at which `step * i + rest` has changed its sign."""
    size = abs(step)
    distance = size - 1 - rest if step > 0 else rest + size
    return distance if size == 1 else distance // size


def _choose_outcome(node: Expr, *, is_first: bool) -> Expr:
    if isinstance(node, COMPARISONS):
        return IntImm("bool", int(is_first))
    return node.a if is_first else node.b


def is_number(expr: Expr) -> bool:
    """Tell whether an expression is an integer constant."""
    return isinstance(expr, IntImm)


def is_of_indices(node: Expr) -> bool:
    """Tell whether the operands of a node have the type of indices."""
    return str(node.a.ty) in _INDICES
