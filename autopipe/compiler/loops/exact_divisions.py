"""Write divisions of indices so that TVM's iteration maps cannot misread them.

TVM 0.27 describes indices as iteration maps (`detect_iter_map`, `normalize_to_iter_sum`) to flatten
buffers, to move blocks and to invert layouts. Where a dividend has an offset or a negative term,
the map is often wrong: the offset of `(i + 1) % 8` is dropped, `(4 - i) % 8` becomes `-(i % -8)`,
and for a tensor that is rolled along both axes in one fused loop one of the offsets is lost. The
same happens where loops overlap, as in `(i + k) % n` for a window k. No pass reports it, and plain
loops are compiled wrong as well.

Iteration maps treat a `Select` and truncating divisions as opaque. So each division of that kind is
written with one of these. For 0 <= i < 8:

    x[(i + 1) % 8]         ->    x[Select(i + 1 < 8, i + 1, i + 1 - 8)]
    x[(3 - i) // 2]        ->    x[truncdiv(3 - i + 4, 2) - 2]
    x[(9 * i + 1) % 6]     ->    x[truncmod(9 * i + 1, 6)]

LLVM 22 vectorizes remainders by powers of two incorrectly: it loads whole vectors of x[(i + 7) % 8]
though they wrap around. It does not vectorize a select, so such a remainder is taken by twice the
size, and the size is subtracted conditionally:

    x[(3 * i + 7) % 8]     ->    r = truncmod(3 * i + 7, 16), x[Select(r < 8, r, r - 8)]

An offset that is a multiple of the divisor is dropped. A dividend that just counts through loops is
kept, which both handle correctly and LLVM vectorizes:

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

from autopipe.compiler.find_nodes import find_nodes, is_among

_DIVISIONS: Final = (tirx.FloorDiv, tirx.FloorMod)
_INDICES: Final = {"int32": 1 << 31, "int64": 1 << 62}
"""Types of indices, and the exclusive bound of their magnitudes."""

_TURNS: Final = 2
"""Most wraps of an index that are written with selects alone."""


def protect_divisions(function: PrimFunc) -> PrimFunc:
    """Rewrite the divisions of indices that iteration maps may misread; idempotent."""
    divisions = find_nodes(function.body, _DIVISIONS)
    if not any(map(_is_index, divisions)):
        return function
    starts, analyzer = _find_domains(function)

    def indices(old: Sequence[Expr]) -> list[Expr] | None:
        """Protect the divisions of indices; None if no index changes."""
        new_indices = [protect_index(index, starts, analyzer) for index in old]
        is_unchanged = all(
            before.same_as(after) for before, after in zip(old, new_indices, strict=True)
        )
        return None if is_unchanged else new_indices

    def load(node: TensorLoad) -> Expr:
        new_indices = indices(node.indices)
        return node if new_indices is None else node.source[tuple(new_indices)]

    def store(node: BufferStore) -> BufferStore:
        new_indices = indices(node.indices)
        return node if new_indices is None else BufferStore(node.buffer, node.value, new_indices)

    def region(node: TensorRegion) -> TensorRegion:
        first, count = ([getattr(part, side) for part in node.region] for side in ("min", "extent"))
        new_bounds = indices([*first, *count])
        if new_bounds is None:
            return node
        bounds = zip(new_bounds[: len(first)], new_bounds[len(first) :], strict=True)
        ranges = [Range.from_min_extent(*bound) for bound in bounds]
        return tirx.BufferRegion(node.source, ranges)

    body = tvm_ffi.structural_map(
        function.body, [(TensorLoad, load), (BufferStore, store), (TensorRegion, region)]
    )
    return function if body.same_as(function.body) else function.with_body(body)


def protect_index(index: Expr, starts: Sequence[Var], analyzer: Analyzer) -> Expr:
    """Rewrite the divisions of one index; `starts` are loops and axes that begin at zero."""
    if _is_sum(index):
        return index

    def division(node: tvm.ir.Expr) -> Expr:
        if not _is_index(node) or _is_plain(node.a, starts, analyzer):
            return node
        turns, rest = _split_turns(node)
        if turns == 0 or not _is_plain(rest, starts, analyzer):
            return write_out_division(node, analyzer)
        if isinstance(node, tirx.FloorMod):
            return tirx.FloorMod(rest, node.b)
        return tirx.FloorDiv(rest, node.b) + tirx.const(turns, str(node.ty))

    return tvm_ffi.structural_map(index, (_DIVISIONS, division))


def to_iteration_sum(flat: Expr, block: SBlock, analyzer: Analyzer) -> IterSumExpr:
    """Normalize an index to an iteration sum of a block's axes; to its base if TVM's is wrong."""
    total = normalize_to_iter_sum(flat, {axis.var: axis.dom for axis in block.iter_vars})
    is_equal = analyzer.can_prove_equal(normalize_iter_map_to_expr(total), flat)
    return total if is_equal else IterSumExpr([], flat)


def protect_module_divisions(module: tvm.IRModule) -> tvm.IRModule:
    """Apply `protect_divisions` to each PrimFunc of a module."""
    functions = {
        name: protect_divisions(function) if isinstance(function, PrimFunc) else function
        for name, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _find_domains(function: PrimFunc) -> tuple[list[Var], Analyzer]:
    """Return the loops and axes that begin at zero, and an analyzer with the known ranges."""
    starts: list[Var] = []
    analyzer = Analyzer()

    def add(var: Var, first: Expr, count: Expr) -> None:
        if _is_data_dependent(first) or _is_data_dependent(count):
            return
        known_range = Range.from_min_extent(first, count)
        analyzer.bind(var, known_range)
        if has_zero_start(known_range):
            starts.append(var)

    def loop(node: For) -> None:
        add(node.loop_var, node.min, node.extent)

    def block(node: SBlock) -> None:
        for axis in node.iter_vars:
            add(axis.var, axis.dom.min, axis.dom.extent)

    tvm_ffi.structural_walk(function.body, [(For, loop), (SBlock, block)], order="pre")
    return starts, analyzer


def has_zero_start(domain: Range) -> bool:
    """Tell whether the range of a loop or an axis begins at zero."""
    return isinstance(domain.min, IntImm) and int(domain.min) == 0


def _is_index(division: tvm.ir.Expr) -> bool:
    """Tell whether the dividend is an index, not a number that is read from memory."""
    return str(division.ty) in _INDICES and not (
        _is_data_dependent(division.a) or _is_data_dependent(division.b)
    )


def _is_data_dependent(expr: Expr) -> bool:
    if _is_sum(expr):
        return False
    nodes = find_nodes(expr, (TensorLoad, Call))
    return any(isinstance(node, TensorLoad) or _is_opaque(node) for node in nodes)


def _is_sum(expr: Expr) -> bool:
    """Tell whether an index is a sum of products of variables and numbers.

    Most are, and need no rewrite: this check is faster than a structural map.
    """
    if isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
        return _is_sum(expr.a) and _is_sum(expr.b)
    return isinstance(expr, Var | IntImm)


def _is_opaque(call: Call) -> bool:
    """Tell whether a call is of any other op than a select."""
    return getattr(call.op, "name", "") != "prim.if_then_else"


def _is_plain(dividend: Expr, starts: Sequence[Var], analyzer: Analyzer) -> bool:
    """Tell whether a dividend counts through loops, as `i * 8 + j` does for j < 8."""
    terms = _collect_terms(dividend, 1, starts)
    if terms is None:
        return False
    step = None
    for factor, atom in sorted(terms, key=lambda term: term[0]):
        if step not in {None, factor}:
            return False
        step = factor * (int(analyzer.const_int_bound(atom).max_value) + 1)
    return True


def _split_turns(division: Any) -> tuple[int, Expr]:  # noqa: ANN401 - of two classes
    """Split an offset that is a multiple of the divisor off a dividend: (multiple, dividend)."""
    dividend, divisor = division.a, division.b
    if not isinstance(dividend, tirx.Add) or not isinstance(divisor, IntImm):
        return 0, dividend
    sides = (dividend.a, dividend.b)
    for offset, rest in (sides, sides[::-1]):
        if isinstance(offset, IntImm) and int(divisor) > 0 and int(offset) % int(divisor) == 0:
            return int(offset) // int(divisor), rest
    return 0, dividend


def _collect_terms(expr: Expr, factor: int, starts: Sequence[Var]) -> list[tuple[int, Expr]] | None:
    """Return (factor, loop or division) of each term of a sum with positive factors, or None."""
    if isinstance(expr, tirx.Add):
        sides = [_collect_terms(side, factor, starts) for side in (expr.a, expr.b)]
        return None if None in sides else [term for side in sides for term in side or ()]
    if isinstance(expr, tirx.Mul):
        number, operand = (expr.a, expr.b) if isinstance(expr.a, IntImm) else (expr.b, expr.a)
        if not isinstance(number, IntImm) or int(number) <= 0:
            return None
        return _collect_terms(operand, factor * int(number), starts)
    loop = isinstance(expr, Var) and is_among(expr, starts)
    return [(factor, expr)] if loop or isinstance(expr, _DIVISIONS) else None


def write_out_division(division: tvm.ir.Expr, analyzer: Analyzer) -> Expr:
    """Replace a floor division by an equal expression without it, if bounds allow it.

    A division that TVM has folded is returned as it is.
    """
    if not isinstance(division, _DIVISIONS):
        return division
    dividend, divisor = division.a, division.b
    size = int(divisor) if isinstance(divisor, IntImm) else 0
    bound = analyzer.const_int_bound(dividend)
    low, high = int(bound.min_value), int(bound.max_value)
    limit = _INDICES[str(division.ty)]
    if size <= 0 or max(abs(low), abs(high)) + size >= limit:
        return _replace_single_wrap(division, analyzer)
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
            return write_out_division(tirx.FloorMod(rising, divisor), analyzer)
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
            int(side) < 0 if isinstance(side, IntImm) else _has_negative_term(side)
            for side in sides
        )
    return isinstance(expr, tirx.Sub)


def _make_terms_positive(expr: Expr, size: int) -> Expr:
    """Rewrite a sum without negative terms, with the same remainder: 3 - 2 * i as 3 + 6 * i."""
    if isinstance(expr, tirx.Add):
        return _make_terms_positive(expr.a, size) + _make_terms_positive(expr.b, size)
    if isinstance(expr, tirx.Sub):
        return _make_terms_positive(expr.a, size) + _make_terms_positive(expr.b, size) * (size - 1)
    if isinstance(expr, tirx.Mul) and _has_negative_term(expr):
        number, operand = (expr.a, expr.b) if isinstance(expr.a, IntImm) else (expr.b, expr.a)
        factor = int(number) % size if isinstance(number, IntImm) else number
        return _make_terms_positive(operand, size) * factor
    return expr


def _replace_single_wrap(division: tvm.ir.Expr, analyzer: Analyzer) -> Expr:
    """Replace a remainder by a dynamic size by a select, if the dividend wraps at most once."""
    if not isinstance(division, tirx.FloorMod):
        return division
    dividend, size = division.a, division.b
    for first in (0, -1):
        difference = dividend - first * size
        if analyzer.can_prove(difference >= 0) and analyzer.can_prove(difference < 2 * size):
            return tirx.Select(difference < size, difference, difference - size)
    return division
