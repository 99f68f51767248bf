"""Writes the loops of attention in bands of queries, so that the scores of a band stay in a cache.

Template `attention` has an example.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.attention import AttentionForm, find_mask_index, to_stored_order
from autopipe.compiler.graph import exponentials
from autopipe.compiler.graph.arithmetic import build_let
from autopipe.schedules.analysis.expressions import (
    open_loop,
    unravel_index,
    write_tile_loops,
)
from autopipe.schedules.loop_writer import job_block
from autopipe.schedules.parallel_work import PRODUCTS

DTYPE: Final = "float32"
"""Of all tensors."""
_TRANSPOSED_ELEMENTS: Final = 8
"""Elements of a query that are read at once where queries are transposed."""


@dataclass(frozen=True, slots=True)
class Attended:
    """The sizes of an attention, which determine the valid knobs."""

    form: AttentionForm
    outer: tuple[int, ...]
    """Extents of the outer axes, such as batch and heads."""
    queries: int
    keys: int
    depth: int
    """Elements of a query and of a key."""
    breadth: int
    """Elements of a value."""


@dataclass(frozen=True, slots=True)
class QueryBand:
    """The knobs of template `attention`."""

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
    """Elements of a tile of results, a multiple of `lanes`."""
    lanes: int
    """Elements of a result in a vector, a power of two."""


_INDEX: Final = "int64"
"""Dtype of indices."""

_write_tile_loops: Final = partial(write_tile_loops, dtype=_INDEX)


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
        attention, knobs = self.found, self.knobs
        bands = -(-attention.queries // knobs.queries)
        jobs = bands * math.prod(attention.outer)
        products = math.prod(attention.outer) * attention.queries * attention.keys
        is_parallel = products * (attention.depth + attention.breadth) >= PRODUCTS
        buffers = self.tensors[:-1], self.tensors[-1:]
        with job_block("attention", jobs, _INDEX, buffers, parallel=is_parallel) as job:
            heads = [T.Bind(at) for at in unravel_index(attention.outer, job // bands)]
            last = attention.queries - knobs.queries
            first = T.Bind(tirx.min(job % bands * knobs.queries, last))
            transposed_queries = self._allocate_buffer(attention.depth, knobs.queries)
            scores = self._allocate_buffer(attention.keys, knobs.queries)
            most, total = self._allocate_buffer(knobs.queries), self._allocate_buffer(knobs.queries)
            self._turn(heads, first, transposed_queries)
            self._write_scores((heads, first), transposed_queries, scores, most)
            self._write_exponentials(scores, most, total)
            self._write_results(heads, first, scores, total)

    def _turn(self, heads: list[Expr], first: Expr, transposed_queries: tvm.ir.Var) -> None:
        """Write the transposed and scaled queries of a band: [depth, queries]."""
        form, query, depth = self.found.form, self.tensors[0], self.found.depth
        chunk = math.gcd(depth, _TRANSPOSED_ELEMENTS)
        scale = tirx.const(form.scale, DTYPE)
        with (
            open_loop(T.serial, depth // chunk, _INDEX) as part,
            open_loop(T.serial, self.knobs.queries, _INDEX) as row,
            open_loop(T.vectorized, chunk, _INDEX) as lane,
        ):
            at = part * chunk + lane
            number = query[to_stored_order(form.query, [*heads, first + row, at])]
            T.buffer_store(transposed_queries, number * scale, [at, row])

    def _write_scores(
        self,
        place: tuple[list[Expr], Expr],
        transposed_queries: tvm.ir.Var,
        scores: tvm.ir.Var,
        most: tvm.ir.Var,
    ) -> None:
        """Write the scores of a band, and the maximum of each query."""
        attention, knobs, key = self.found, self.knobs, self.tensors[1]
        lowest, sizes = tirx.min_value(DTYPE), (knobs.keys, knobs.across, knobs.width)
        for _, lane in _write_tile_loops(1, knobs.queries, knobs.width):
            T.buffer_store(most, lowest, [lane])
        with (
            open_loop(T.serial, -(-attention.keys // knobs.keys), _INDEX) as tile,
            open_loop(T.serial, knobs.queries // knobs.across, _INDEX) as strip,
        ):
            start = T.Bind(tirx.min(tile * knobs.keys, attention.keys - knobs.keys))
            left = T.Bind(strip * knobs.across)
            sums = self._allocate_buffer(knobs.keys, knobs.across, scope="local")

            def add(row: Expr, lane: Expr, step: Expr) -> Expr:
                part = key[to_stored_order(attention.form.key, [*place[0], start + row, step])]
                return part * transposed_queries[step, left + lane]

            self._write_sums(sums, sizes, attention.depth, add)
            largest = self._allocate_buffer(knobs.across, scope="local")
            for _, lane in _write_tile_loops(1, *sizes[1:]):
                T.buffer_store(largest, most[left + lane], [lane])
            for row, lane in _write_tile_loops(*sizes):
                score = sums[row, lane] + self._load_mask(place, start + row, left + lane)
                T.buffer_store(sums, score, [row, lane])
                T.buffer_store(scores, sums[row, lane], [start + row, left + lane])
                # A NaN that is lost here comes back in the sum of the exponentials.
                maximum, score = largest[lane], sums[row, lane]
                T.buffer_store(largest, tirx.Select(maximum > score, maximum, score), [lane])
            for _, lane in _write_tile_loops(1, *sizes[1:]):
                T.buffer_store(most, largest[lane], [left + lane])

    def _load_mask(self, place: tuple[list[Expr], Expr], key: Expr, lane: Expr) -> Expr:
        """Return the addend of a mask for a score."""
        if not self.found.form.masked:
            return tirx.const(0, DTYPE)
        heads, first = place
        return self.tensors[3][find_mask_index(self.tensors[3], [*heads, first + lane, key])]

    def _write_exponentials(self, scores: tvm.ir.Var, most: tvm.ir.Var, total: tvm.ir.Var) -> None:
        """Replace each score by e^(score - maximum of its query), and sum these per query."""
        knobs = self.knobs
        with open_loop(T.serial, knobs.queries // knobs.width, _INDEX) as vector:
            sums = self._allocate_buffer(knobs.width, scope="local")
            with open_loop(T.vectorized, knobs.width, _INDEX) as lane:
                T.buffer_store(sums, tirx.const(0, DTYPE), [lane])
            with open_loop(T.serial, self.found.keys, _INDEX) as key:
                with open_loop(T.vectorized, knobs.width, _INDEX) as lane:
                    at = vector * knobs.width + lane
                    below = scores[key, at] - most[at]
                    share = (
                        build_let(below, exponentials.compute_exp_below)
                        if self.fast
                        else tirx.exp(below)
                    )
                    T.buffer_store(scores, share, [key, at])
                with open_loop(T.vectorized, knobs.width, _INDEX) as lane:
                    at = vector * knobs.width + lane
                    T.buffer_store(sums, sums[lane] + scores[key, at], [lane])
            with open_loop(T.vectorized, knobs.width, _INDEX) as lane:
                T.buffer_store(total, sums[lane], [vector * knobs.width + lane])

    def _write_results(
        self, heads: list[Expr], first: Expr, scores: tvm.ir.Var, total: tvm.ir.Var
    ) -> None:
        """Write the weighted sums of values, divided by the sum of the exponentials."""
        attention, knobs, value, out = self.found, self.knobs, self.tensors[2], self.tensors[-1]
        with (
            open_loop(T.serial, -(-attention.breadth // knobs.columns), _INDEX) as strip,
            open_loop(T.serial, -(-knobs.queries // knobs.rows), _INDEX) as tile,
        ):
            left = T.Bind(tirx.min(strip * knobs.columns, attention.breadth - knobs.columns))
            above = T.Bind(tirx.min(tile * knobs.rows, knobs.queries - knobs.rows))
            sums = self._allocate_buffer(knobs.rows, knobs.columns, scope="local")

            def add(row: Expr, lane: Expr, step: Expr) -> Expr:
                part = value[to_stored_order(attention.form.value, [*heads, step, left + lane])]
                return scores[step, above + row] * part

            self._write_sums(sums, (knobs.rows, knobs.columns, knobs.lanes), attention.keys, add)
            for row, lane in _write_tile_loops(knobs.rows, knobs.columns, knobs.lanes):
                place = [*heads, first + above + row, left + lane]
                mean = sums[row, lane] / total[above + row]
                T.buffer_store(out, mean, to_stored_order(attention.form.result, place))

    @staticmethod
    def _write_sums(
        sums: tvm.ir.Var,
        sizes: tuple[int, int, int],
        steps: int,
        add: Callable[[Expr, Expr, Expr], Expr],
    ) -> None:
        """Write a tile of sums over some steps, in registers."""
        for row, lane in _write_tile_loops(*sizes):
            T.buffer_store(sums, tirx.const(0, DTYPE), [row, lane])
        with open_loop(T.serial, steps, _INDEX) as step:
            for row, lane in _write_tile_loops(*sizes):
                T.buffer_store(sums, sums[row, lane] + add(row, lane, step), [row, lane])

    @staticmethod
    def _allocate_buffer(*shape: int, scope: str = "global") -> tvm.ir.Var:
        return T.sblock_alloc_buffer(shape, DTYPE, scope=scope)
