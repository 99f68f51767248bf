"""Write divisions of indices so that TVM's iteration maps cannot misread them.

TVM 0.27 describes indices as iteration maps (`detect_iter_map`, `normalize_to_iter_sum`) to flatten
buffers, to move blocks and to invert layouts. Where a dividend has an offset or a negative term,
the map is often wrong: the offset of `(i + 1) % 8` is dropped, `(4 - i) % 8` becomes `-(i % -8)`,
and of an image that is rolled along both axes in one fused loop one of the offsets is lost. So it
is where loops overlap, as in `(i + k) % n` for a window k. No pass reports it, and plain loops are
compiled wrong as well.

Maps do not look into a `Select`, nor into divisions that round towards zero. So each division of
that kind is written with one of these. For 0 <= i < 8:

    x[(i + 1) % 8]         ->    x[Select(i + 1 < 8, i + 1, i + 1 - 8)]
    x[(3 - i) // 2]        ->    x[truncdiv(3 - i + 4, 2) - 2]
    x[(9 * i + 1) % 6]     ->    x[truncmod(9 * i + 1, 6)]

LLVM 22 makes wrong vectors of remainders by powers of two: it loads whole vectors of x[(i + 7) % 8]
though they go on at the other end. It makes none of a choice, so such a remainder is one of twice
the size, of which half may be taken off:

    x[(3 * i + 7) % 8]     ->    r = truncmod(3 * i + 7, 16), x[Select(r < 8, r, r - 8)]

An offset that goes around a whole number of times is taken off. A plain count of loops is left,
which both read right and LLVM takes in whole vectors:

    x[(i + 16) % 8]        ->    x[i % 8]
"""

from collections.abc import Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, Range, TensorLoad, TensorRegion, Var
from tvm.s_tir import SBlock
from tvm.sym import (
    Analyzer,
    IterSumExpr,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
)
from tvm.tirx import BufferStore, For, IntImm, PrimFunc

_DIVISIONS: Final = (tirx.FloorDiv, tirx.FloorMod)
_INDICES: Final = {"int32": 1 << 31, "int64": 1 << 62}
"""Types of indices, and what the sizes of their values stay below."""

_TURNS: Final = 2
"""Most times that an index goes past the end of a circle and is written with choices alone."""


def protect_divisions(function: PrimFunc) -> PrimFunc:
    """Rewrite the divisions of indices that iteration maps may misread; idempotent."""
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (_DIVISIONS, found.append))
    if not any(map(_is_index, found)):
        return function
    starts, known = _find_domains(function)

    def indices(ones: Sequence[Expr]) -> list[Expr] | None:
        """Return changed indices, or None if all stay."""
        new = [protect_index(one, starts, known) for one in ones]
        same = all(one.same_as(other) for one, other in zip(ones, new, strict=True))
        return None if same else new

    def load(one: TensorLoad) -> Expr:
        new = indices(one.indices)
        return one if new is None else one.source[tuple(new)]

    def store(one: BufferStore) -> BufferStore:
        new = indices(one.indices)
        return one if new is None else BufferStore(one.buffer, one.value, new)

    def region(one: TensorRegion) -> TensorRegion:
        first, count = ([getattr(part, side) for part in one.region] for side in ("min", "extent"))
        new = indices([*first, *count])
        if new is None:
            return one
        bounds = zip(new[: len(first)], new[len(first) :], strict=True)
        ranges = [Range.from_min_extent(*each) for each in bounds]
        return tirx.BufferRegion(one.source, ranges)

    body = tvm_ffi.structural_map(
        function.body, [(TensorLoad, load), (BufferStore, store), (TensorRegion, region)]
    )
    return function if body.same_as(function.body) else function.with_body(body)


def protect_index(index: Expr, starts: Sequence[Var], known: Analyzer) -> Expr:
    """Rewrite the divisions of one index; `starts` are loops and axes that begin at zero."""
    if _is_sum(index):
        return index

    def division(one: tvm.ir.Expr) -> Expr:
        if not _is_index(one) or _is_plain(one.a, starts, known):
            return one
        turns, rest = _split_turns(one)
        if turns == 0 or not _is_plain(rest, starts, known):
            return write_out_division(one, known)
        if isinstance(one, tirx.FloorMod):
            return tirx.FloorMod(rest, one.b)
        return tirx.FloorDiv(rest, one.b) + tirx.const(turns, str(one.ty))

    return tvm_ffi.structural_map(index, (_DIVISIONS, division))


def to_iteration_sum(flat: Expr, block: SBlock, known: Analyzer) -> IterSumExpr:
    """Return an index as a sum of parts of a block's axes; as its base alone if TVM's is wrong."""
    total = normalize_to_iter_sum(flat, {axis.var: axis.dom for axis in block.iter_vars})
    right = known.can_prove_equal(normalize_iter_map_to_expr(total), flat)
    return total if right else IterSumExpr([], flat)


def protect_module_divisions(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module with `protect_divisions` applied to each PrimFunc."""
    functions = {
        name: protect_divisions(one) if isinstance(one, PrimFunc) else one
        for name, one in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _find_domains(function: PrimFunc) -> tuple[list[Var], Analyzer]:
    """Return the loops and axes that begin at zero, and the ranges of all that have one."""
    starts: list[Var] = []
    known = Analyzer()

    def add(var: Var, first: Expr, count: Expr) -> None:
        if _is_data_dependent(first) or _is_data_dependent(count):
            return
        known_range = Range.from_min_extent(first, count)
        known.bind(var, known_range)
        if has_zero_start(known_range):
            starts.append(var)

    def loop(one: For) -> None:
        add(one.loop_var, one.min, one.extent)

    def block(one: SBlock) -> None:
        for axis in one.iter_vars:
            add(axis.var, axis.dom.min, axis.dom.extent)

    tvm_ffi.structural_walk(function.body, [(For, loop), (SBlock, block)], order="pre")
    return starts, known


def has_zero_start(one: Range) -> bool:
    """Tell whether the range of a loop or an axis begins at zero."""
    return isinstance(one.min, IntImm) and int(one.min) == 0


def _is_index(division: tvm.ir.Expr) -> bool:
    """Tell whether an index is divided, and no number that is read from memory."""
    return str(division.ty) in _INDICES and not (
        _is_data_dependent(division.a) or _is_data_dependent(division.b)
    )


def _is_data_dependent(expr: Expr) -> bool:
    if _is_sum(expr):
        return False
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, ((TensorLoad, Call), found.append))
    return any(isinstance(one, TensorLoad) or _is_opaque(one) for one in found)


def _is_sum(expr: Expr) -> bool:
    """Return whether an index is a sum of products of variables and numbers.

    Most are, and nothing in them is rewritten: that is known sooner than a structural map begins.
    """
    if isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
        return _is_sum(expr.a) and _is_sum(expr.b)
    return isinstance(expr, Var | IntImm)


def _is_opaque(call: Call) -> bool:
    """Tell whether a call is of anything but a choice."""
    return getattr(call.op, "name", "") != "prim.if_then_else"


def _is_plain(dividend: Expr, starts: Sequence[Var], known: Analyzer) -> bool:
    """Tell whether a dividend counts through loops, as `i * 8 + j` does for j < 8."""
    terms = _collect_terms(dividend, 1, starts)
    if terms is None:
        return False
    step = None
    for factor, atom in sorted(terms, key=lambda term: term[0]):
        if step not in {None, factor}:
            return False
        step = factor * (int(known.const_int_bound(atom).max_value) + 1)
    return True


def _split_turns(division: Any) -> tuple[int, Expr]:  # noqa: ANN401 - of two classes
    """Return how often a constant offset goes around, and the dividend without it; 0 for others."""
    dividend, divisor = division.a, division.b
    if not isinstance(dividend, tirx.Add) or not isinstance(divisor, IntImm):
        return 0, dividend
    sides = (dividend.a, dividend.b)
    for offset, rest in (sides, sides[::-1]):
        if isinstance(offset, IntImm) and int(divisor) > 0 and int(offset) % int(divisor) == 0:
            return int(offset) // int(divisor), rest
    return 0, dividend


def _collect_terms(expr: Expr, factor: int, starts: Sequence[Var]) -> list[tuple[int, Expr]] | None:
    """Return the terms of a sum of loops and their divisions times positive numbers, or None."""
    if isinstance(expr, tirx.Add):
        sides = [_collect_terms(side, factor, starts) for side in (expr.a, expr.b)]
        return None if None in sides else [term for side in sides for term in side or ()]
    if isinstance(expr, tirx.Mul):
        number, other = (expr.a, expr.b) if isinstance(expr.a, IntImm) else (expr.b, expr.a)
        if not isinstance(number, IntImm) or int(number) <= 0:
            return None
        return _collect_terms(other, factor * int(number), starts)
    loop = isinstance(expr, Var) and any(map(expr.same_as, starts))
    return [(factor, expr)] if loop or isinstance(expr, _DIVISIONS) else None


def write_out_division(division: tvm.ir.Expr, known: Analyzer) -> Expr:
    """Return an equal expression without the division that rounds down, if bounds allow it.

    TVM may have folded the division, which is returned as it is then.
    """
    if not isinstance(division, _DIVISIONS):
        return division
    dividend, divisor = division.a, division.b
    size = int(divisor) if isinstance(divisor, IntImm) else 0
    bound = known.const_int_bound(dividend)
    low, high = int(bound.min_value), int(bound.max_value)
    limit = _INDICES[str(division.ty)]
    if size <= 0 or max(abs(low), abs(high)) + size >= limit:
        return _replace_single_wrap(division, known)
    first, last = low // size, high // size

    def plus(expr: Expr, periods: int) -> Expr:
        return expr + tirx.const(periods * size, str(division.ty)) if periods else expr

    if isinstance(division, tirx.FloorMod) and 1 <= last - first <= _TURNS:
        rest = plus(dividend, -last)
        for turn in range(last - 1, first - 1, -1):
            end = tirx.const((turn + 1) * size, str(division.ty))
            rest = tirx.Select(dividend < end, plus(dividend, -turn), rest)
        return rest
    lift = max(0, -first)
    if isinstance(division, tirx.FloorMod):
        period = 2 * size if size & (size - 1) == 0 else size
        rising = _make_terms_positive(dividend, period)
        if _has_negative_term(dividend) and not _has_negative_term(rising):
            return write_out_division(tirx.FloorMod(rising, divisor), known)
        rest = tirx.truncmod(plus(dividend, lift), tirx.const(period, str(division.ty)))
        return rest if period == size else tirx.Select(rest < divisor, rest, rest - divisor)
    quotient = tirx.truncdiv(plus(dividend, lift), divisor)
    return quotient - tirx.const(lift, str(division.ty)) if lift else quotient


def _has_negative_term(expr: Expr) -> bool:
    """Tell whether a sum has a negative term: TVM's vectors of its remainders are wrong."""
    if isinstance(expr, tirx.Add):
        return _has_negative_term(expr.a) or _has_negative_term(expr.b)
    if isinstance(expr, tirx.Mul):
        sides = (expr.a, expr.b)
        return any(
            int(one) < 0 if isinstance(one, IntImm) else _has_negative_term(one) for one in sides
        )
    return isinstance(expr, tirx.Sub)


def _make_terms_positive(expr: Expr, size: int) -> Expr:
    """Return a sum with the same remainder and without negative terms: 3 - 2 * i as 3 + 6 * i."""
    if isinstance(expr, tirx.Add):
        return _make_terms_positive(expr.a, size) + _make_terms_positive(expr.b, size)
    if isinstance(expr, tirx.Sub):
        return _make_terms_positive(expr.a, size) + _make_terms_positive(expr.b, size) * (size - 1)
    if isinstance(expr, tirx.Mul) and _has_negative_term(expr):
        number, other = (expr.a, expr.b) if isinstance(expr.a, IntImm) else (expr.b, expr.a)
        factor = int(number) % size if isinstance(number, IntImm) else number
        return _make_terms_positive(other, size) * factor
    return expr


def _replace_single_wrap(division: tvm.ir.Expr, known: Analyzer) -> Expr:
    """Return the remainder by a dynamic size of what goes past it once at most."""
    if not isinstance(division, tirx.FloorMod):
        return division
    dividend, size = division.a, division.b
    for first in (0, -1):
        here = dividend - first * size
        if known.can_prove(here >= 0) and known.can_prove(here < 2 * size):
            return tirx.Select(here < size, here, here - size)
    return division
