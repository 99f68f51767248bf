"""Find where the indices in a loop change their form: at borders of clamps, guards and turns.

A minimum, a maximum and a comparison have one outcome on each side of a border, and a quotient is
one number between two. `codegen/split_at_borders.py` splits loops there.

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

_SIZE: Final = 1 << 16
"""Most that a size probably is."""

_TURNS: Final = 2
"""Most times that a divided index goes around in a loop that is split for it."""

_INDICES: Final = {"int32", "int64"}
COMPARISONS: Final = (LT, LE, GT, GE)
_REMAINDERS: Final = (tirx.FloorMod, tirx.Mod)
_DIVISIONS: Final = (*_REMAINDERS, tirx.FloorDiv, tirx.Div)
SIDES: Final = (*COMPARISONS, Min, Max)
"""What has another outcome on each side of a border."""

_CHOICES: Final = (*SIDES, *_DIVISIONS)


def find_choices(axis: Var, part: "Iterations", ranges: "Ranges") -> list["IndexForm"]:
    """Return what has one form in most of some iterations; `axis` is the variable of the loop."""
    return _Scope.of(axis, part, ranges).choices()


def has_choices(body: Stmt) -> bool:
    """Tell whether there are indices that may have several forms."""
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (_CHOICES, found.append))
    return any(map(is_of_indices, found))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of the variables of a function."""

    known: Analyzer
    likely: Analyzer
    """With sizes between 0 and `_SIZE`, which tells on which side of a border most of a loop is."""

    @classmethod
    def of(cls, function: PrimFunc) -> "Ranges":
        """Return the ranges of all loops, and likely ones of what is only known at run time."""
        ranges = cls(Analyzer(), Analyzer())

        def bind_loop(loop: For) -> None:
            if not (is_number(loop.min) and is_number(loop.extent)):
                bind_size(loop.loop_var)
                return
            for analyzer in (ranges.known, ranges.likely):
                known = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
                analyzer.bind(loop.loop_var, known)

        def bind_size(var: Var) -> None:
            dtype = str(var.ty)
            if dtype in _INDICES:
                likely = tvm.ir.Range(tirx.const(0, dtype), tirx.const(_SIZE, dtype))
                ranges.likely.bind(var, likely)

        for param in function.params:
            bind_size(param)
        tvm_ffi.structural_walk(
            function.body, [(For, bind_loop), (tirx.Bind, lambda one: bind_size(one.var))]
        )
        return ranges


@dataclass(frozen=True, slots=True)
class Iterations:
    """Iterations of a loop, and what they do."""

    first: Expr
    end: Expr
    body: Stmt

    def loop(self, old: For, known: Analyzer) -> For:
        """Return a loop of these iterations."""
        extent = known.simplify(self.end - self.first)
        return For(old.loop_var, self.first, extent, old.kind, self.body, None, old.annotations)

    def most(self, known: Analyzer) -> int:
        """Return how many there are at most."""
        return int(known.const_int_bound(self.end - self.first).max_value)

    def decided(self, choices: Sequence["IndexForm"]) -> "Iterations":
        """Return the iterations for which choices have their usual outcomes."""
        first, end = self.first, self.end
        for choice in choices:
            first = reduce(tirx.max, choice.begins, first)
            end = reduce(tirx.min, choice.ends, end)

        def outcome(node: Expr) -> Expr:
            return next((one.outcome for one in choices if one.node.same_as(node)), node)

        return Iterations(first, end, tvm_ffi.structural_map(self.body, (_CHOICES, outcome)))


@dataclass(frozen=True, slots=True)
class IndexForm:
    """An expression that has one form in most of a loop."""

    node: Any
    outcome: Expr
    """That form."""
    begins: Sequence[Expr]
    """Iterations from which on it may have it."""
    ends: Sequence[Expr]
    """Iterations before which it has it."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Where in a loop a number becomes negative, or ceases to be so."""

    falls: bool
    """Whether it becomes negative."""
    least: Expr
    """The first iteration after that, and the one for the last of all steps of loops inside."""
    most: Expr

    @property
    def begins(self) -> list[Expr]:
        """Return the iteration from which on it is negative, if it falls."""
        return [self.most] if self.falls else []

    @property
    def ends(self) -> list[Expr]:
        """Return the iteration before which it is negative, if it rises."""
        return [] if self.falls else [self.least]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What indices in a part of a loop are made of."""

    axis: Var
    """The variable of the loop."""
    part: Iterations
    ranges: Ranges
    binds: list[tuple[Var, Expr]] = field(default_factory=list)
    """Variables that are bound in the loop."""
    inner: list[For] = field(default_factory=list)
    """Loops in the loop."""

    @classmethod
    def of(cls, axis: Var, part: Iterations, ranges: Ranges) -> "_Scope":
        """Return the scope of a part."""
        scope = cls(axis, part, ranges)

        def bind(one: tirx.Bind) -> None:
            scope.binds.append((one.var, one.value))

        tvm_ffi.structural_walk(part.body, [(tirx.Bind, bind), (For, scope.inner.append)])
        return scope

    def choices(self) -> list[IndexForm]:
        """Return the choices that have one outcome in most of the part."""
        nodes: list[Any] = []
        tvm_ffi.structural_walk(self.part.body, (_CHOICES, nodes.append))
        made = (self._analyze_choice(node) for node in nodes if is_of_indices(node))
        return [one for one in made if one is not None]

    def _analyze_choice(self, node: Expr) -> IndexForm | None:
        """Return a choice, or None if its borders are not known for all loops inside."""
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
        """Return a quotient or remainder where few quotients are possible."""
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
        whole = tirx.const(quotient, str(node.ty))
        outcome = node.a - quotient * size if isinstance(node, _REMAINDERS) else whole
        return IndexForm(node, outcome, above.begins + below.begins, above.ends + below.ends)

    def _find_sign_change(self, sign: Expr) -> _Change | None:
        """Return where `sign` becomes negative or ceases to be; None if that is not known."""
        linear = detect_linear_equation(sign, [self.axis])
        if len(linear) == 0 or not isinstance(linear[0], IntImm) or int(linear[0]) == 0:
            return None
        step, known = int(linear[0]), self.ranges.known
        borders = [
            known.simplify(find_border(step, rest)) for rest in self._find_extremes(linear[1])
        ]
        if not borders:
            return None
        least, most = borders if step < 0 else reversed(borders)
        return _Change(step < 0, least, most)

    def _find_extremes(self, rest: Expr) -> list[Expr]:
        """Return the least and the largest value for all loops inside; nothing if not known."""
        axes = [one.loop_var for one in self.inner]
        parts = detect_linear_equation(rest, axes) if axes else [rest]
        if len(parts) == 0 or not self._is_outside(parts[-1]):
            return []
        least = most = parts[-1]
        for factor, one in zip(parts[:-1], self.inner, strict=True):
            if not all(map(is_number, (factor, one.min, one.extent))):
                return []
            ends = [int(factor) * int(at) for at in (one.min, one.min + one.extent - 1)]
            least, most = least + min(ends), most + max(ends)
        return [least, most]

    def _is_outside(self, expr: Expr) -> bool:
        """Tell whether an expression is known before the loop, and nothing is loaded for it."""
        own = [self.axis, *(var for var, _ in self.binds)]
        used: list[Any] = []
        tvm_ffi.structural_walk(expr, ((TensorLoad, Call, tirx.Let, Var), used.append))
        return all(isinstance(one, Var) and not any(map(one.same_as, own)) for one in used)

    def _inline_bindings(self, expr: Expr) -> Expr:
        """Return an expression without variables that are bound in the loop."""

        def value(var: Var) -> Expr:
            bound = (value for one, value in self.binds if one.same_as(var))
            return next(map(self._inline_bindings, bound), var)

        return tvm_ffi.structural_map(expr, (Var, value)) if self.binds else expr


def build_difference(node: Expr) -> Expr:
    """Return what is negative where a comparison holds, or the first operand is taken."""
    if isinstance(node, LT):
        return node.a - node.b
    if isinstance(node, GT):
        return node.b - node.a
    least, most = (node.a, node.b) if isinstance(node, LE | Min) else (node.b, node.a)
    return least - most - 1


_Number = TypeVar("_Number", int, Expr)


def find_border(step: int, rest: _Number) -> _Number:
    """Return the first iteration of which `step * i + rest` has the other sign."""
    size = abs(step)
    found = size - 1 - rest if step > 0 else rest + size
    return found if size == 1 else found // size


def _choose_outcome(node: Expr, *, is_first: bool) -> Expr:
    if isinstance(node, COMPARISONS):
        return IntImm("bool", int(is_first))
    return node.a if is_first else node.b


def is_number(expr: Expr) -> bool:
    """Tell whether an expression is a number."""
    return isinstance(expr, IntImm)


def is_of_indices(node: Expr) -> bool:
    """Tell whether the operands of a node are integers as indices are."""
    return str(node.a.ty) in _INDICES
