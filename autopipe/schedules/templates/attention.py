"""Template for attention: only the scores of a band of queries are materialized, in the cache.

An attribute of the function names the operation, and is trusted only if the reference loops of that
operation equal the loops of the function. A job is a band of queries of one head. Its scores are
stored with keys as rows, so that the maximum and the sum of a softmax are computed in whole
vectors; only the queries are transposed for that.

Example: 128 queries and keys, depth 32, a band of 32 queries, vectors of 16.

    for head, band in parallel(12, 4):
        qt[d, s] = q[32 * band + s, d] * scale                   # [32, 32]
        for tile in range(16):                                   # 8 keys: 8 x 2 registers
            sums[0:8, 0:32] = 0
            for d in range(32):
                sums[t, 0:32] += k[8 * tile + t, d] * qt[d, 0:32]
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
from collections.abc import Iterator
from functools import partial
from typing import Final

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder

from autopipe.compiler.attention import (
    ATTRIBUTE,
    AttentionForm,
    build_attention,
    parse_form,
    to_usual_order,
)
from autopipe.compiler.graph import elementary
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import extent_of, has_reference_loops, tensors_of
from autopipe.schedules.cost import hiding_sums
from autopipe.schedules.divisors import floor_power
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import rewrite_function
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.bands import DTYPE, Attended, BandLoops, QueryBand

_BITS: Final = 32
_MOST_VECTORS: Final = 4
"""Maximum registers in a row of a tile."""
_STRIPS: Final = (1, 2, 3, 4, 6, 8)
"""Tiles of scores side by side in a job."""
_EXP: Final = 12
"""Time of e^x of a vector, in multiply-adds. Without it, with 16 registers, another band is chosen
for a third of all shapes."""
_LATE_LOAD_SUMS: Final = 2
"""Sums of a tile beyond those that hide the latency of a multiply-add, to hide late loads."""


class AttentionTemplate(Template[Attended, QueryBand]):
    """Attention of any number of heads: bands of queries, with the scores in the cache."""

    name = "attention"
    version = schedule_version("attention")

    def match(self, sch: Schedule) -> Attended | None:
        """Match the function, or return None if the template does not apply."""
        function = sch.mod["main"]
        form = parse_form(str((function.attrs or {}).get(ATTRIBUTE, "")))
        if form is None or not _has_plain_loops(form, function):
            return None
        query, key, value = (
            [extent_of(n) for n in to_usual_order(order, tensor.shape)]
            for order, tensor in zip(
                (form.query, form.key, form.value), tensors_of(function), strict=False
            )
        )
        sizes = (*query, *key[-2:], *value[-2:])
        static_sizes = [n for n in sizes if isinstance(n, int)]
        if len(static_sizes) < len(sizes) or min(static_sizes[-6:]) <= 1:
            return None
        *outer, queries, depth, keys, _, _, breadth = static_sizes
        return Attended(form, tuple(outer), queries, keys, depth, breadth)

    def settings(self, match: Attended, hardware: HardwareParams) -> Iterator[QueryBand]:
        """Yield bands of whole tiles of scores, and tiles that fill the registers."""
        lanes = hardware.lanes(_BITS)
        width, value_width = (
            floor_power(min(lanes, match.queries)),
            floor_power(min(lanes, match.breadth)),
        )
        for keys, across in _list_tiles(match.keys, match.queries, width, hardware.registers):
            for rows, columns in _list_tiles(
                match.queries, match.breadth, value_width, hardware.registers
            ):
                for strips in _STRIPS:
                    queries = strips * across
                    if queries <= match.queries:
                        tile_rows = min(rows, queries)
                        yield QueryBand(
                            queries, keys, across, width, tile_rows, columns, value_width
                        )

    def estimate(self, match: Attended, knobs: QueryBand, hardware: HardwareParams) -> float:
        """Estimate the time of a setting, in loads and multiply-adds of vectors.

        A core issues two of each in a cycle, and a tile needs enough sums to hide their latency.
        """
        bands, tiles = -(-match.queries // knobs.queries), -(-match.keys // knobs.keys)
        vectors, columns = knobs.across // knobs.width, knobs.columns // knobs.lanes
        strips = knobs.queries // knobs.across
        scores = strips * tiles * match.depth * _estimate_tile_step(knobs.keys, vectors, hardware)
        softmax = match.keys * strips * vectors * _EXP
        parts = -(-match.breadth // knobs.columns) * -(-knobs.queries // knobs.rows)
        results = parts * match.keys * _estimate_tile_step(knobs.rows, columns, hardware)
        jobs = bands * math.prod(match.outer)
        rounds = -(-jobs // hardware.cores)
        overflows_cache = knobs.queries * match.keys * _BITS // 8 > hardware.l2 // 2
        transposed_elements = knobs.queries * match.depth
        return (
            rounds
            * (scores + softmax + results + transposed_elements)
            * (1.2 if overflows_cache else 1.0)
        )

    def apply(self, sch: Schedule, match: Attended, knobs: QueryBand) -> None:
        """Schedule the function."""
        function = sch.mod["main"]
        with IRBuilder() as builder:
            BandLoops(
                match, knobs, tensors_of(function), fast=elementary.is_marked(function)
            ).write()
        rewrite_function(sch, builder.get(), [])


ATTENTION: Final = AttentionTemplate()


def _list_tiles(rows: int, columns: int, width: int, registers: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of tiles whose sums, and a row of vectors, fit into registers."""
    for vectors in range(1, min(_MOST_VECTORS, columns // width) + 1):
        yield min(rows, max(1, (registers - vectors - 1) // vectors)), vectors * width


def _estimate_tile_step(rows: int, vectors: int, hardware: HardwareParams) -> float:
    """Estimate the time of one step of a tile of sums, in multiply-adds of vectors."""
    return (
        max(rows * vectors, hiding_sums(hardware.machine) + _LATE_LOAD_SUMS) + (rows + vectors) / 2
    )


def _has_plain_loops(form: AttentionForm, function: tirx.PrimFunc) -> bool:
    """Tell whether the loops of a function are the reference loops of a form, in float32."""
    tensors = tensors_of(function)
    if len(tensors) != 4 + form.masked or any(str(one.dtype) != DTYPE for one in tensors):
        return False
    return has_reference_loops(function, partial(build_attention, form))
