"""Writes the loops of attention: bands of queries, whose scores stay in a cache.

Template `attention` says in an example what they do.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.attention import AttentionForm, ordered, within
from autopipe.compiler.graph import exponentials
from autopipe.compiler.graph.arithmetic import let
from autopipe.schedules.analysis.expressions import unfold, whole
from autopipe.schedules.parallel_work import PRODUCTS

DTYPE: Final = "float32"
"""Of all tensors."""
_TURNED: Final = 8
"""Numbers that are read at once where queries are turned around."""


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


def _number(value: int) -> Expr:
    return tirx.IntImm("int64", value)


@dataclass(frozen=True, slots=True)
class BandLoops:
    """Writes the loops. An IRBuilder must be open."""

    found: Attended
    knobs: QueryBand
    tensors: list[tvm.ir.Var]
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

    def _turn(self, heads: list[Expr], first: Expr, turned: tvm.ir.Var) -> None:
        """Write the queries of a band, their numbers as rows."""
        form, query, depth = self.found.form, self.tensors[0], self.found.depth
        chunk = math.gcd(depth, _TURNED)
        scale = tirx.const(form.scale, DTYPE)
        with (
            T.serial(_number(0), _number(depth // chunk)) as part,
            T.serial(_number(0), _number(self.knobs.queries)) as row,
            T.vectorized(_number(0), _number(chunk)) as lane,
        ):
            at = part * chunk + lane
            number = query[ordered(form.query, [*heads, first + row, at])]
            T.buffer_store(turned, number * scale, [at, row])

    def _scores(
        self,
        place: tuple[list[Expr], Expr],
        turned: tvm.ir.Var,
        scores: tvm.ir.Var,
        most: tvm.ir.Var,
    ) -> None:
        """Write the scores of a band, and the largest of each query."""
        found, knobs, key = self.found, self.knobs, self.tensors[1]
        lowest, sizes = tirx.min_value(DTYPE), (knobs.keys, knobs.across, knobs.width)
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
                # A NaN that is lost here comes back in the sum of all shares.
                known, score = largest[lane], sums[row, lane]
                T.buffer_store(largest, tirx.Select(known > score, known, score), [lane])
            for _, lane in _tile_elements(1, *sizes[1:]):
                T.buffer_store(most, largest[lane], [left + lane])

    def _masked(self, place: tuple[list[Expr], Expr], key: Expr, lane: Expr) -> Expr:
        """Return what a mask adds to a score."""
        if not self.found.form.masked:
            return tirx.const(0, DTYPE)
        heads, first = place
        return self.tensors[3][within(self.tensors[3], [*heads, first + lane, key])]

    def _shares(self, scores: tvm.ir.Var, most: tvm.ir.Var, total: tvm.ir.Var) -> None:
        """Write e^score in the place of each score, as a share of that of the largest one."""
        knobs = self.knobs
        with T.serial(_number(0), _number(knobs.queries // knobs.width)) as vector:
            sums = self._buffer(knobs.width, scope="local")
            with T.vectorized(_number(0), _number(knobs.width)) as lane:
                T.buffer_store(sums, tirx.const(0, DTYPE), [lane])
            with T.serial(_number(0), _number(self.found.keys)) as key:
                with T.vectorized(_number(0), _number(knobs.width)) as lane:
                    at = vector * knobs.width + lane
                    below = scores[key, at] - most[at]
                    share = let(below, exponentials.exp_below) if self.fast else tirx.exp(below)
                    T.buffer_store(scores, share, [key, at])
                with T.vectorized(_number(0), _number(knobs.width)) as lane:
                    at = vector * knobs.width + lane
                    T.buffer_store(sums, sums[lane] + scores[key, at], [lane])
            with T.vectorized(_number(0), _number(knobs.width)) as lane:
                T.buffer_store(total, sums[lane], [vector * knobs.width + lane])

    def _results(
        self, heads: list[Expr], first: Expr, scores: tvm.ir.Var, total: tvm.ir.Var
    ) -> None:
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
        sums: tvm.ir.Var,
        sizes: tuple[int, int, int],
        steps: int,
        add: Callable[[Expr, Expr, Expr], Expr],
    ) -> None:
        """Write a tile of sums over some steps, in registers."""
        for row, lane in _tile_elements(*sizes):
            T.buffer_store(sums, tirx.const(0, DTYPE), [row, lane])
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
    def _buffer(*shape: int, scope: str = "global") -> tvm.ir.Var:
        return T.sblock_alloc_buffer(shape, DTYPE, scope=scope)


def _tile_elements(rows: int, columns: int, width: int) -> Iterator[tuple[Expr, Expr]]:
    """Write unrolled loops over the elements of a tile, in vectors; yield row and column."""
    with (
        T.unroll(_number(0), _number(rows)) as row,
        T.unroll(_number(0), _number(columns // width)) as vector,
        T.vectorized(_number(0), _number(width)) as lane,
    ):
        yield row, vector * width + lane
