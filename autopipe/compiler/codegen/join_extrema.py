"""Checks the operands of a chain of maxima or minima for NaN in pairs.

NaN propagation costs a comparison for each operand, beside that of the maximum: a pool of 3 x 3
has nine of each. One ordered comparison checks two operands for NaN. So a chain of updates ignores
NaN operands, and its result is corrected at the end:

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

from autopipe.compiler.find_nodes import find_nodes, is_among

_FEWEST: Final = 4
"""Minimum length of a chain that gains: at three links the correction costs what it saves."""

_FLOATS: Final = ("float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class _ExtremumChain:
    """Maxima, or minima, of one accumulator without other reads of it in between.

    Other updates may come between them: an accumulator that is NaN stays NaN.
    """

    kind: type[Expr]
    load: TensorLoad
    links: list[int] = field(default_factory=list)
    """Positions of the updates in the sequence."""

    def has(self, value: Any) -> bool:  # noqa: ANN401 - a maximum or minimum
        """Tell whether a value is the next one of the accumulator."""
        return isinstance(value, self.kind) and tvm_ffi.structural_equal(value.a, self.load)


def join_extrema(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Rewrite the long chains of extrema of a vectorized kernel, so that they propagate NaN."""
    updates: list[tirx.BufferStore] = []

    def find_update(store: tirx.BufferStore) -> None:
        value = store.value
        if isinstance(value, tirx.Max | tirx.Min) and isinstance(value.a, TensorLoad):
            updates.append(store)

    tvm_ffi.structural_walk(function.body, [(tirx.BufferStore, find_update)])
    if len(updates) < _FEWEST:
        return function
    own_buffers: list[tvm.ir.Var] = []
    visit = (tirx.AllocBuffer, lambda one: own_buffers.append(one.buffer))
    tvm_ffi.structural_walk(function.body, [visit])
    return tvm_ffi.structural_map(function, (tirx.SeqStmt, partial(_join_chains, own_buffers)))


def _join_chains(own_buffers: Sequence[tvm.ir.Var], sequence: tirx.SeqStmt) -> tirx.Stmt:
    """Rewrite the chains of a sequence that accumulate in the function's `own_buffers`."""
    statements = list(sequence.seq)
    chains = [
        chain for chain in _list_chains(statements, own_buffers) if len(chain.links) >= _FEWEST
    ]
    if not chains:
        return sequence
    parts: dict[int, Sequence[tirx.Stmt]] = {at: [one] for at, one in enumerate(statements)}
    for chain in chains:
        links = [statements[at] for at in chain.links]
        parts.update(zip(chain.links, _rewrite_links(links), strict=True))
    return tirx.SeqStmt([one for at in range(len(statements)) for one in parts[at]])


def _list_chains(
    statements: Sequence[Any], own_buffers: Sequence[tvm.ir.Var]
) -> list[_ExtremumChain]:
    """List the chains of a sequence. Any other use of their accumulator ends them."""
    chains: list[_ExtremumChain] = []
    open_chains: list[_ExtremumChain] = []
    for at, statement in enumerate(statements):
        is_link = _is_link(statement, own_buffers)
        read_buffers = find_nodes(statement.value.b if is_link else statement, tvm.ir.Var)
        open_chains = [one for one in open_chains if not is_among(one.load.source, read_buffers)]
        if not is_link:
            continue
        value = statement.value
        chain = next((one for one in open_chains if one.has(value)), None)
        if chain is None:
            chain = _ExtremumChain(type(value), value.a)
            chains.append(chain)
            open_chains.append(chain)
        chain.links.append(at)
    return chains


def _is_link(statement: tirx.Stmt, own_buffers: Sequence[tvm.ir.Var]) -> bool:
    """Tell whether a statement updates elements of a buffer by an extremum of them and a value."""
    value = statement.value if isinstance(statement, tirx.BufferStore) else None
    if not isinstance(value, tirx.Max | tirx.Min) or not is_float(value):
        return False
    load = value.a
    if not isinstance(load, TensorLoad) or not is_among(load.source, own_buffers):
        return False
    places = [one.base if isinstance(one, tirx.Ramp) else one for one in load.indices]
    if not all(isinstance(place, tirx.IntImm) for place in places):
        return False
    updates_itself = load.source.same_as(statement.buffer)
    return updates_itself and tvm_ffi.structural_equal(load.indices, statement.indices)


def _rewrite_links(links: Sequence[Any]) -> Iterator[list[tirx.Stmt]]:
    """Yield the statements of each link; those of the last one correct the accumulator."""
    is_first = tirx.GT if isinstance(links[0].value, tirx.Max) else tirx.LT
    pair: list[Expr] = []
    before: list[Expr] = []
    for at, link in enumerate(links):
        load, operand = link.value.a, tirx.Var("t", link.value.ty)
        statements: list[tirx.Stmt] = [tirx.Bind(operand, link.value.b)]
        value: Expr = tirx.Select(is_first(operand, load), operand, load)  # the load if it is NaN
        pair.append(tirx.EQ(operand, operand))
        last = at + 1 == len(links)
        if len(pair) > 1 or last:
            condition = reduce(tirx.And, [*pair, *before])  # LLVM compares a pair at once
            is_ordered = tirx.Var("ordered", condition.ty)
            pair, before = [], [is_ordered]
            statements.append(tirx.Bind(is_ordered, condition))
        if last:
            value = tirx.Select(before[0], value, _make_nan(value))
        yield [*statements, tirx.BufferStore(link.buffer, value, link.indices)]


def is_float(value: Expr) -> bool:
    """Tell whether a value is a float of a dtype that kernels compute in, or a vector of such."""
    return str(value.ty).partition("x")[0] in _FLOATS


def _make_nan(like: Expr) -> Expr:
    dtype, _, lanes = str(like.ty).partition("x")
    nan = tirx.FloatImm(dtype, math.nan)
    return tirx.Broadcast(nan, int(lanes)) if lanes else nan
