"""Split loops at borders, so that most of a loop has no clamped, wrapped or guarded index.

LLVM loads the elements of a vector one by one where an index is a minimum, a maximum or a choice,
and branches where a load is guarded. Between the borders these have one outcome. So such a loop is
written three times: as it was before and behind the borders, and with the outcomes in between.
Vectors of TVM have none of this, and stay as they are.

Example: the largest of each three neighbours, of [512].

    for i in range(512):                                  # before: gathers
        y[i] = max(x[max(i - 1, 0)], x[i], x[min(i + 1, 511)])

    for i in range(0, 1): ...                             # after: the same
    for i in range(1, 511):                               # vectors
        y[i] = max(x[i - 1], x[i], x[i + 1])
    for i in range(511, 512): ...

It is done after TVM has made vectors and unrolled loops, and for loops that are long enough to have
vectors. Iterations and their order stay the same, so all numbers do.
"""

from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.tirx import Evaluate, For, ForKind, PrimFunc, Stmt

from autopipe.compiler.loops.copy_loops import copy_loop_nest
from autopipe.compiler.loops.index_borders import (
    Iterations,
    Ranges,
    find_choices,
    has_choices,
    is_number,
)

_LEAST: Final = 16
"""Fewest iterations between borders: shorter loops have few vectors."""

_ROUNDS: Final = 4
"""Most choices that are inside of each other, as in an index that is reflected at both ends."""

_DEPTH: Final = 2
"""How often what is outside of borders is split again, such as the other half of a circle."""

_MOST_CHOICES: Final = 400
"""Most choices in a loop that is copied: more of them make the code large."""


def split_at_borders(function: PrimFunc) -> PrimFunc:
    """Return a function whose long loops without vectors are split where choices change."""
    if not has_choices(function.body):
        return function
    known = Ranges.of(function)
    body = tvm_ffi.structural_map(function.body, (For, lambda one: _split_loop(one, known, _DEPTH)))
    return function if body.same_as(function.body) else function.with_body(body)


def _split_loop(loop: For, ranges: Ranges, depth: int) -> Stmt:
    """Return a loop, or loops in its place."""
    if not _can_vectorize(loop):
        return loop
    known = ranges.known
    whole = Iterations(loop.min, known.simplify(loop.min + loop.extent), loop.body)
    between = whole
    for _ in range(_ROUNDS):
        choices = find_choices(loop.loop_var, between, ranges)
        if not choices or len(choices) > _MOST_CHOICES:
            break
        between = between.decided(choices)
    if between.body.same_as(loop.body) or between.most(known) < _LEAST:
        return loop
    first = known.simplify(tirx.min(between.first, whole.end))
    end = known.simplify(tirx.max(between.end, first))
    outside = [Iterations(whole.first, first, loop.body), Iterations(end, whole.end, loop.body)]
    before, after = (
        _split_loop(part.loop(loop, known), ranges, depth - 1)
        if depth and part.most(known) >= _LEAST
        else part.loop(loop, known)
        for part in outside
    )
    middle = Iterations(first, end, between.body).loop(loop, known)
    done = [one for one in (before, middle, after) if not _is_empty(one)]
    if not done:
        return Evaluate(0)
    return tirx.stmt_seq(*map(copy_loop_nest, done))


def _can_vectorize(loop: For) -> bool:
    """Tell whether a loop is long, and vectors are left to LLVM: loops in it are short."""
    if loop.kind != ForKind.SERIAL or loop.step is not None or _is_short(loop):
        return False
    inner: list[For] = []
    vectors: list[Any] = []
    tvm_ffi.structural_walk(
        loop.body, [(For, inner.append), ((tirx.Ramp, tirx.Broadcast), vectors.append)]
    )
    return not vectors and all(one.kind != ForKind.PARALLEL and _is_short(one) for one in inner)


def _is_short(loop: For) -> bool:
    return is_number(loop.extent) and int(loop.extent) < _LEAST


def _is_empty(part: Stmt) -> bool:
    return isinstance(part, For) and is_number(part.extent) and int(part.extent) <= 0
