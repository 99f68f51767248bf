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

The pass runs after TVM has vectorized and unrolled loops, on loops that are long enough to have
vectors. Iterations and their order stay the same, so all results do.
"""

from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.tirx import Evaluate, For, ForKind, PrimFunc, Stmt

from autopipe.compiler.find_nodes import find_nodes
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
"""Deepest nesting of choices, as in an index that is reflected at both ends."""

_DEPTH: Final = 2
"""How often iterations outside of the borders are split again."""

_MOST_CHOICES: Final = 400
"""Most choices in a loop that is copied: more of them make the code large."""


def split_at_borders(function: PrimFunc) -> PrimFunc:
    """Split the long loops of a function that TVM did not vectorize where choices change."""
    loops = find_nodes(function.body, For)
    if not any(map(_can_vectorize, loops)) or not has_choices(function.body):
        return function
    ranges = Ranges.of(function)
    body = tvm_ffi.structural_map(
        function.body, (For, lambda loop: _split_loop(loop, ranges, _DEPTH))
    )
    return function if body.same_as(function.body) else function.with_body(body)


def _split_loop(loop: For, ranges: Ranges, depth: int) -> Stmt:
    """Split a loop at the borders of its choices if enough iterations lie between them."""
    if not _can_vectorize(loop):
        return loop
    analyzer = ranges.known
    whole_range = Iterations(loop.min, analyzer.simplify(loop.min + loop.extent), loop.body)
    between = whole_range
    for _ in range(_ROUNDS):
        choices = find_choices(loop.loop_var, between, ranges)
        if not choices or len(choices) > _MOST_CHOICES:
            break
        between = between.decided(choices)
    if between.body.same_as(loop.body) or between.most(analyzer) < _LEAST:
        return loop
    first = analyzer.simplify(tirx.min(between.first, whole_range.end))
    end = analyzer.simplify(tirx.max(between.end, first))
    outside = [
        Iterations(whole_range.first, first, loop.body),
        Iterations(end, whole_range.end, loop.body),
    ]
    before, after = (
        _split_loop(part.loop(loop, analyzer), ranges, depth - 1)
        if depth and part.most(analyzer) >= _LEAST
        else part.loop(loop, analyzer)
        for part in outside
    )
    middle = Iterations(first, end, between.body).loop(loop, analyzer)
    parts = [part for part in (before, middle, after) if not _is_empty(part)]
    if not parts:
        return Evaluate(0)
    return tirx.stmt_seq(*map(copy_loop_nest, parts))


def _can_vectorize(loop: For) -> bool:
    """Tell whether a loop is long and left to LLVM to vectorize: loops in it are short."""
    if loop.kind != ForKind.SERIAL or loop.step is not None or _is_short(loop):
        return False
    inner: list[For] = []
    vectors: list[Any] = []
    tvm_ffi.structural_walk(
        loop.body, [(For, inner.append), ((tirx.Ramp, tirx.Broadcast), vectors.append)]
    )
    return not vectors and all(nest.kind != ForKind.PARALLEL and _is_short(nest) for nest in inner)


def _is_short(loop: For) -> bool:
    return is_number(loop.extent) and int(loop.extent) < _LEAST


def _is_empty(part: Stmt) -> bool:
    return isinstance(part, For) and is_number(part.extent) and int(part.extent) <= 0
