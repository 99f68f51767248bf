"""Template for attention: no matrix of scores is kept but that of a few queries, in the cache.

A function says in an attribute what it computes. It is believed only where the plain loops of that
are the very loops of the function. A job is a band of queries of one head. Its scores lie with the
keys as rows, so that the largest score of a query, and the sum of its shares, are found in whole
vectors; only the queries have to be turned around for that.

Example: 128 queries and keys, depth 32, a band of 32 queries, vectors of 16.

    for head, band in parallel(12, 4):
        turned[d, s] = q[32 * band + s, d] * scale               # [32, 32]
        for tile in range(16):                                   # 8 keys: 8 x 2 registers
            sums[0:8, 0:32] = 0
            for d in range(32):
                sums[t, 0:32] += k[8 * tile + t, d] * turned[d, 0:32]
            scores[8 * tile : 8 * tile + 8, 0:32] = sums + mask
            most[0:32] = max(most[0:32], sums + mask)
        for t in range(128):
            scores[t, 0:32] = exp(scores[t, 0:32] - most[0:32])
            total[0:32] += scores[t, 0:32]
        for tile in range(4):                                    # 8 queries: 8 x 2 registers
            sums[0:8, 0:32] = 0
            for t in range(128):
                sums[s, 0:32] += scores[t, 8 * tile + s] * v[t, 0:32]
            y[32 * band + 8 * tile + s, 0:32] = sums / total[8 * tile + s]

The last tile, and the last band, overlap the one before.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tvm import te, tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.attention import (
    ATTRIBUTE,
    AttentionForm,
    ordered,
    parse,
    plain,
    usual,
    within,
)
from autopipe.compiler.graph import elementary
from autopipe.compiler.graph.arithmetic import let
from autopipe.compiler.rebuild import same_code
from autopipe.schedules.analysis.blocks import extent_of
from autopipe.schedules.analysis.expressions import unfold, whole
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import PRODUCTS

# ruff: noqa: ANN401  what TVM has no types for

NAME: Final = "attention"
VERSION: Final = 1

_DTYPE: Final = "float32"
_BITS: Final = 32
_MOST_VECTORS: Final = 4
"""Most registers in a row of a tile."""
_TURNED: Final = 8
"""Numbers that are read at once where queries are turned around."""
_STRIPS: Final = (1, 2, 3, 4, 6, 8)
"""Tiles of scores beside each other in a job."""
_EXP: Final = 12
"""Multiply-adds that e^x takes as long as."""
_FEW: Final = 10
"""Sums that hide the latency of a multiply-add: fewer rows are no tile worth trying."""


@dataclass(frozen=True, slots=True)
class Attended:
    """What the knobs depend on."""

    form: AttentionForm
    outer: tuple[int, ...]
    """Extents of the outer axes, such as batch and heads."""
    queries: int
    keys: int
    depth: int
    """Numbers of a query and of a key."""
    breadth: int
    """Numbers of a value."""


@dataclass(frozen=True, slots=True)
class QueryBand:
    """The knobs."""

    queries: int
    """Queries of a job, a multiple of those of a tile of scores."""
    keys: int
    """Keys of a tile of scores."""
    across: int
    """Queries of a tile of scores, a multiple of `width`."""
    width: int
    """Queries in a vector, a power of two."""
    rows: int
    """Queries of a tile of results."""
    columns: int
    """Numbers of a tile of results, a multiple of `lanes`."""
    lanes: int
    """Numbers of a result in a vector, a power of two."""


def match(sch: Schedule) -> Attended | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    function = sch.mod["main"]
    form = parse(str((function.attrs or {}).get(ATTRIBUTE, "")))
    if form is None or not _is(form, function):
        return None
    query, key, value = (
        [extent_of(n) for n in usual(order, tensor.shape)]
        for order, tensor in zip(
            (form.query, form.key, form.value), _tensors(function), strict=False
        )
    )
    if not all(isinstance(n, int) and n > 1 for n in (*query[-2:], *key[-2:], *value[-2:])):
        return None
    if not all(isinstance(n, int) for n in query):
        return None
    return Attended(form, tuple(query[:-2]), query[-2], key[-2], query[-1], value[-1])


def settings(found: Attended, hardware: HardwareParams) -> Iterator[QueryBand]:
    """Yield bands of whole tiles of scores, and tiles that fill the registers."""
    lanes = hardware.lanes(_BITS)
    width, wide = _power(min(lanes, found.queries)), _power(min(lanes, found.breadth))
    for keys, across in _tiles(found.keys, found.queries, width, hardware.registers):
        for rows, columns in _tiles(found.queries, found.breadth, wide, hardware.registers):
            for strips in _STRIPS:
                queries = strips * across
                if queries <= found.queries:
                    few = min(rows, queries)
                    yield QueryBand(queries, keys, across, width, few, columns, wide)


def _tiles(rows: int, columns: int, width: int, registers: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of tiles whose sums, and a row of vectors, fit into registers."""
    for vectors in range(1, min(_MOST_VECTORS, columns // width) + 1):
        yield min(rows, max(1, (registers - vectors - 1) // vectors)), vectors * width


def fill(found: Attended, hardware: HardwareParams) -> QueryBand:
    """Return the knobs for a processor, without measuring."""
    return min(settings(found, hardware), key=lambda knobs: estimate(found, knobs, hardware))


def estimate(found: Attended, knobs: QueryBand, hardware: HardwareParams) -> float:
    """Return the time of a setting, in loads and multiply-adds of vectors.

    A core starts two of each in a cycle, and a tile needs enough sums to hide their latency.
    """
    bands, tiles = -(-found.queries // knobs.queries), -(-found.keys // knobs.keys)
    vectors, columns = knobs.across // knobs.width, knobs.columns // knobs.lanes
    strips = knobs.queries // knobs.across
    scores = strips * tiles * found.depth * _tile(knobs.keys, vectors)
    softmax = found.keys * strips * vectors * _EXP
    parts = -(-found.breadth // knobs.columns) * -(-knobs.queries // knobs.rows)
    results = parts * found.keys * _tile(knobs.rows, columns)
    jobs = bands * math.prod(found.outer)
    rounds = -(-jobs // hardware.cores)
    large = knobs.queries * found.keys * _BITS // 8 > hardware.l2 // 2
    turned = knobs.queries * found.depth
    return rounds * (scores + softmax + results + turned) * (1.2 if large else 1.0)


def _tile(rows: int, vectors: int) -> float:
    """Return what one step of a tile of sums takes."""
    return max(rows * vectors, _FEW) + (rows + vectors) / 2


def apply(sch: Schedule, found: Attended, knobs: QueryBand) -> None:
    """Schedule the function."""
    function = sch.mod["main"]
    with IRBuilder() as builder:
        _BandLoops(found, knobs, _tensors(function), fast=elementary.marked(function)).write()
    here = sch.get_sblock("root")
    root = sch.get(here)
    new = SBlock([], [], [], root.name_hint, builder.get(), annotations=root.annotations)
    sch.state.replace(sch.get_sref(here), new, {root: new})


def _tensors(function: tirx.PrimFunc) -> list[Any]:
    return [one for one in function.params if isinstance(one.ty, tirx.BufferType)]


def _is(form: AttentionForm, function: tirx.PrimFunc) -> bool:
    """Tell whether the loops of a function are the plain ones of a form, in single precision."""
    tensors = _tensors(function)
    if len(tensors) != 4 + form.masked or any(str(one.dtype) != _DTYPE for one in tensors):
        return False
    given = [te.placeholder(one.shape, str(one.dtype), one.name) for one in tensors[:-1]]
    try:
        wanted = te.create_prim_func([*given, plain(form, *given)], index_dtype_override="int64")
    except (IndexError, RuntimeError, TypeError, ValueError):  # other tensors than those of a form
        return False
    return same_code(wanted, function)


def _power(most: int) -> int:
    """Return the largest power of two up to a number."""
    return 1 << (most.bit_length() - 1)


def _number(value: int) -> Expr:
    return tirx.IntImm("int64", value)


@dataclass(frozen=True, slots=True)
class _BandLoops:
    """Writes the loops. An IRBuilder must be open."""

    found: Attended
    knobs: QueryBand
    tensors: list[Any]
    fast: bool
    """Whether elementary functions may round differently from libm's."""

    def write(self) -> None:
        """Write the loop over bands of all heads."""
        found, knobs = self.found, self.knobs
        bands = -(-found.queries // knobs.queries)
        jobs = bands * math.prod(found.outer)
        products = math.prod(found.outer) * found.queries * found.keys
        many = jobs > 1 and products * (found.depth + found.breadth) >= PRODUCTS
        loop = T.parallel if many else T.serial
        with loop(_number(0), _number(jobs)) as job, T.sblock("attention"):
            T.reads(*map(whole, self.tensors[:-1]))
            T.writes(whole(self.tensors[-1]))
            heads = [T.Bind(at) for at in unfold(found.outer, job // bands)]
            last = found.queries - knobs.queries
            first = T.Bind(tirx.min(job % bands * knobs.queries, _number(last)))
            turned = self._buffer(found.depth, knobs.queries)
            scores = self._buffer(found.keys, knobs.queries)
            most, total = self._buffer(knobs.queries), self._buffer(knobs.queries)
            self._turn(heads, first, turned)
            self._scores((heads, first), turned, scores, most)
            self._shares(scores, most, total)
            self._results(heads, first, scores, total)

    def _turn(self, heads: list[Expr], first: Expr, turned: Any) -> None:
        """Write the queries of a band, their numbers as rows."""
        form, query, depth = self.found.form, self.tensors[0], self.found.depth
        chunk = math.gcd(depth, _TURNED)
        scale = tirx.const(form.scale, _DTYPE)
        with (
            T.serial(_number(0), _number(depth // chunk)) as part,
            T.serial(_number(0), _number(self.knobs.queries)) as row,
            T.vectorized(_number(0), _number(chunk)) as lane,
        ):
            at = part * chunk + lane
            number = query[ordered(form.query, [*heads, first + row, at])]
            T.buffer_store(turned, number * scale, [at, row])

    def _scores(self, place: tuple[list[Expr], Expr], turned: Any, scores: Any, most: Any) -> None:
        """Write the scores of a band, and the largest of each query."""
        found, knobs, key = self.found, self.knobs, self.tensors[1]
        lowest, sizes = tirx.min_value(_DTYPE), (knobs.keys, knobs.across, knobs.width)
        self._each(lambda lane: T.buffer_store(most, lowest, [lane]))
        with (
            T.serial(_number(0), _number(-(-found.keys // knobs.keys))) as tile,
            T.serial(_number(0), _number(knobs.queries // knobs.across)) as strip,
        ):
            start = T.Bind(tirx.min(tile * knobs.keys, _number(found.keys - knobs.keys)))
            left = T.Bind(strip * knobs.across)
            sums = self._buffer(knobs.keys, knobs.across, scope="local")

            def add(row: Expr, lane: Expr, step: Expr) -> Expr:
                part = key[ordered(found.form.key, [*place[0], start + row, step])]
                return part * turned[step, left + lane]

            self._sum(sums, sizes, found.depth, add)
            largest = self._buffer(knobs.across, scope="local")
            for _, lane in _tile_elements(1, *sizes[1:]):
                T.buffer_store(largest, most[left + lane], [lane])
            for row, lane in _tile_elements(*sizes):
                score = sums[row, lane] + self._masked(place, start + row, left + lane)
                T.buffer_store(sums, score, [row, lane])
                T.buffer_store(scores, sums[row, lane], [start + row, left + lane])
                T.buffer_store(largest, tirx.max(largest[lane], sums[row, lane]), [lane])
            for _, lane in _tile_elements(1, *sizes[1:]):
                T.buffer_store(most, largest[lane], [left + lane])

    def _masked(self, place: tuple[list[Expr], Expr], key: Expr, lane: Expr) -> Expr:
        """Return what a mask adds to a score."""
        if not self.found.form.masked:
            return tirx.const(0, _DTYPE)
        heads, first = place
        return self.tensors[3][within(self.tensors[3], [*heads, first + lane, key])]

    def _shares(self, scores: Any, most: Any, total: Any) -> None:
        """Write e^score in the place of each score, as a share of that of the largest one."""
        knobs = self.knobs
        with T.serial(_number(0), _number(knobs.queries // knobs.width)) as vector:
            sums = self._buffer(knobs.width, scope="local")
            with T.vectorized(_number(0), _number(knobs.width)) as lane:
                T.buffer_store(sums, tirx.const(0, _DTYPE), [lane])
            with T.serial(_number(0), _number(self.found.keys)) as key:
                with T.vectorized(_number(0), _number(knobs.width)) as lane:
                    at = vector * knobs.width + lane
                    below = scores[key, at] - most[at]
                    share = let(below, elementary.exp_below) if self.fast else tirx.exp(below)
                    T.buffer_store(scores, share, [key, at])
                with T.vectorized(_number(0), _number(knobs.width)) as lane:
                    at = vector * knobs.width + lane
                    T.buffer_store(sums, sums[lane] + scores[key, at], [lane])
            with T.vectorized(_number(0), _number(knobs.width)) as lane:
                T.buffer_store(total, sums[lane], [vector * knobs.width + lane])

    def _results(self, heads: list[Expr], first: Expr, scores: Any, total: Any) -> None:
        """Write the sums of values, divided by the sum of shares."""
        found, knobs, value, out = self.found, self.knobs, self.tensors[2], self.tensors[-1]
        with (
            T.serial(_number(0), _number(-(-found.breadth // knobs.columns))) as strip,
            T.serial(_number(0), _number(-(-knobs.queries // knobs.rows))) as tile,
        ):
            left = T.Bind(tirx.min(strip * knobs.columns, _number(found.breadth - knobs.columns)))
            above = T.Bind(tirx.min(tile * knobs.rows, _number(knobs.queries - knobs.rows)))
            sums = self._buffer(knobs.rows, knobs.columns, scope="local")

            def add(row: Expr, lane: Expr, step: Expr) -> Expr:
                part = value[ordered(found.form.value, [*heads, step, left + lane])]
                return scores[step, above + row] * part

            self._sum(sums, (knobs.rows, knobs.columns, knobs.lanes), found.keys, add)
            for row, lane in _tile_elements(knobs.rows, knobs.columns, knobs.lanes):
                place = [*heads, first + above + row, left + lane]
                mean = sums[row, lane] / total[above + row]
                T.buffer_store(out, mean, ordered(found.form.result, place))

    @staticmethod
    def _sum(
        sums: Any, sizes: tuple[int, int, int], steps: int, add: Callable[[Expr, Expr, Expr], Expr]
    ) -> None:
        """Write a tile of sums over some steps, in registers."""
        for row, lane in _tile_elements(*sizes):
            T.buffer_store(sums, tirx.const(0, _DTYPE), [row, lane])
        with T.serial(_number(0), _number(steps)) as step:
            for row, lane in _tile_elements(*sizes):
                T.buffer_store(sums, sums[row, lane] + add(row, lane, step), [row, lane])

    def _each(self, store: Callable[[Expr], None]) -> None:
        """Write loops over the queries of a band, in vectors."""
        width = self.knobs.width
        with (
            T.unroll(_number(0), _number(self.knobs.queries // width)) as vector,
            T.vectorized(_number(0), _number(width)) as lane,
        ):
            store(vector * width + lane)

    @staticmethod
    def _buffer(*shape: int, scope: str = "global") -> Any:
        return T.sblock_alloc_buffer(shape, _DTYPE, scope=scope)


def _tile_elements(rows: int, columns: int, width: int) -> Iterator[tuple[Expr, Expr]]:
    """Write unrolled loops over the elements of a tile, in vectors; yield row and column."""
    with (
        T.unroll(_number(0), _number(rows)) as row,
        T.unroll(_number(0), _number(columns // width)) as vector,
        T.vectorized(_number(0), _number(width)) as lane,
    ):
        yield row, vector * width + lane
