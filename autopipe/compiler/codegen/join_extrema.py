"""Has chains of maxima or minima look for NaN in two of their operands at once.

To propagate NaN costs a comparison for each operand, beside that of the maximum: a pool of 3 x 3
has nine of each. One comparison tells of two numbers whether they are ordered, as all are but NaN.
So a chain of updates ignores operands that are NaN, and is corrected at its end:

    most = max(most, x)        most = select(x > most, x, most)       # stays NaN if it was
    most = max(most, y)        most = select(y > most, y, most)
    most = max(most, z)        most = select(z > most, z, most)
    most = max(most, w)        most = select(w > most, w, most)
                               most = select(ordered(x, y) and ordered(z, w), most, nan)
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad

_FEWEST: Final = 4
"""Links of a chain that gain: of three, the correction costs what the comparisons save."""

_FLOATS: Final = ("float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class _ExtremumChain:
    """Maxima, or minima, of one accumulator, which nothing reads in between.

    Other updates may come between them: what is NaN once stays so.
    """

    kind: type[Expr]
    load: TensorLoad
    links: list[int] = field(default_factory=list)
    """Positions of the updates in the sequence."""

    def has(self, value: Any) -> bool:  # noqa: ANN401 - a maximum or minimum
        """Tell whether a value is the next one of the accumulator."""
        return isinstance(value, self.kind) and tvm_ffi.structural_equal(value.a, self.load)


def join_extrema(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel, after its vectors were made, whose long chains of extrema propagate NaN."""
    own: list[tvm.ir.Var] = []
    visit = (tirx.AllocBuffer, lambda one: own.append(one.buffer))
    tvm_ffi.structural_walk(function.body, [visit])
    return tvm_ffi.structural_map(function, (tirx.SeqStmt, partial(_join_chains, own)))


def _join_chains(own: Sequence[tvm.ir.Var], sequence: tirx.SeqStmt) -> tirx.Stmt:
    """Rewrite the chains of a sequence whose accumulators are buffers of the function's `own`."""
    statements = list(sequence.seq)
    chains = [chain for chain in _list_chains(statements, own) if len(chain.links) >= _FEWEST]
    if not chains:
        return sequence
    parts: dict[int, Sequence[tirx.Stmt]] = {at: [one] for at, one in enumerate(statements)}
    for chain in chains:
        links = [statements[at] for at in chain.links]
        parts.update(zip(chain.links, _rewrite_links(links), strict=True))
    return tirx.SeqStmt([one for at in range(len(statements)) for one in parts[at]])


def _list_chains(statements: Sequence[Any], own: Sequence[tvm.ir.Var]) -> list[_ExtremumChain]:
    """Return the chains of a sequence. Any other use of their accumulator ends them."""
    found: list[_ExtremumChain] = []
    going: list[_ExtremumChain] = []
    for at, statement in enumerate(statements):
        is_link = _is_link(statement, own)
        used: list[tvm.ir.Var] = []
        others = statement.value.b if is_link else statement
        tvm_ffi.structural_walk(others, [(tvm.ir.Var, used.append)])
        going = [one for one in going if not any(map(one.load.source.same_as, used))]
        if not is_link:
            continue
        value = statement.value
        chain = next((one for one in going if one.has(value)), None)
        if chain is None:
            chain = _ExtremumChain(type(value), value.a)
            found.append(chain)
            going.append(chain)
        chain.links.append(at)
    return found


def _is_link(statement: tirx.Stmt, own: Sequence[tvm.ir.Var]) -> bool:
    """Tell whether a statement updates elements of a buffer by an extremum of them and a value."""
    value = statement.value if isinstance(statement, tirx.BufferStore) else None
    if not isinstance(value, tirx.Max | tirx.Min) or not is_float(value):
        return False
    load = value.a
    if not isinstance(load, TensorLoad) or not any(map(load.source.same_as, own)):
        return False
    places = [one.base if isinstance(one, tirx.Ramp) else one for one in load.indices]
    if not all(isinstance(place, tirx.IntImm) for place in places):
        return False
    same = load.source.same_as(statement.buffer)
    return same and tvm_ffi.structural_equal(load.indices, statement.indices)


def _rewrite_links(links: Sequence[Any]) -> Iterator[list[tirx.Stmt]]:
    """Yield the statements of each link; those of the last one correct the accumulator."""
    is_first = tirx.GT if isinstance(links[0].value, tirx.Max) else tirx.LT
    pair: list[Expr] = []
    before: list[Expr] = []
    for at, link in enumerate(links):
        load, operand = link.value.a, tirx.Var("t", link.value.ty)
        made: list[tirx.Stmt] = [tirx.Bind(operand, link.value.b)]
        value: Expr = tirx.Select(is_first(operand, load), operand, load)  # the load if it is NaN
        pair.append(tirx.EQ(operand, operand))
        last = at + 1 == len(links)
        if len(pair) > 1 or last:
            joined = reduce(tirx.And, [*pair, *before])  # LLVM compares a pair at once
            ordered = tirx.Var("ordered", joined.ty)
            pair, before = [], [ordered]
            made.append(tirx.Bind(ordered, joined))
        if last:
            value = tirx.Select(before[0], value, _make_nan(value))
        yield [*made, tirx.BufferStore(link.buffer, value, link.indices)]


def is_float(value: Expr) -> bool:
    """Tell whether a value is a float of a dtype that kernels compute in, or a vector of such."""
    return str(value.ty).partition("x")[0] in _FLOATS


def _make_nan(like: Expr) -> Expr:
    dtype, _, lanes = str(like.ty).partition("x")
    nan = tirx.FloatImm(dtype, math.nan)
    return tirx.Broadcast(nan, int(lanes)) if lanes else nan
