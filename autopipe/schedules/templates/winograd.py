"""Template for 3x3 convolutions by minimal filtering, as implementation `winograd` writes them.

Blocks of tiles run in parallel, and blocks of output channels where there are few tiles. A block
transforms its patches once, into a buffer that its core's cache holds. Then, a chunk of output
channels at a time, it multiplies at each position of a tile, summing in registers, and transforms
the sums back into the output, with all that follows.
"""

import math
from collections.abc import Iterator
from typing import Final

from tvm.ir import Expr
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Var

from autopipe.schedules.analysis.filtering_cost import BYTES, Blocking, Filtering, estimate
from autopipe.schedules.divisors import divisors
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import PRODUCTS, spread
from autopipe.schedules.write_out import write_out

NAME: Final = "winograd"
VERSION: Final = 1

_PATCH, _ROWS, _INPUT = "winograd_patch", "winograd_rows", "winograd_input"
_KERNEL, _PRODUCT = "winograd_kernel", "winograd_product"
_COLUMNS, _TILE = "winograd_columns", "winograd_tile"

_LINE = 64
"""Bytes of a cache line."""

MAX_VECTORS = 4
"""Vectors in a row of a block of sums."""

MAX_TILES = 64
"""Tiles in a parallel block."""

MAX_CHUNK = 256
"""Output channels between product and transformation back."""

_STAGES = (_PATCH, _ROWS, _INPUT, _KERNEL, _PRODUCT, _COLUMNS, _TILE)


def match(sch: Schedule) -> Filtering | None:
    """Return what the knobs depend on, or None if the function is not by minimal filtering."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    names = {block.name_hint: block for block in blocks}
    if not names.keys() >= set(_STAGES):
        return None
    rows, columns, tiles, outputs, inputs = (
        int(axis.dom.extent) for axis in names[_PRODUCT].iter_vars
    )
    return Filtering(rows * columns, tiles, inputs, outputs)


def settings(found: Filtering, hardware: Hardware) -> Iterator[Blocking]:
    """Yield every blocking whose sums fit the registers."""
    width = math.gcd(found.outputs, hardware.lanes(8 * BYTES))
    for vectors in divisors(found.outputs // width, MAX_VECTORS):
        columns = vectors * width
        free = hardware.registers - vectors - 1  # for a row of weights and one broadcast value
        for rows in divisors(found.tiles, free // vectors):
            for tiles, parts, chunk in _blocks(found, hardware, rows, columns):
                yield Blocking(tiles, parts, chunk, rows, columns, width)


def _blocks(
    found: Filtering, hardware: Hardware, rows: int, columns: int
) -> Iterator[tuple[int, int, int]]:
    """Yield tiles in a block, parts of the channels, and channels in a chunk."""
    for many in divisors(found.tiles // rows, MAX_TILES // rows):
        for parts in divisors(found.outputs // columns, hardware.cores):
            for some in divisors(found.outputs // parts // columns, MAX_CHUNK // columns):
                yield many * rows, parts, some * columns


def fill(found: Filtering, hardware: Hardware) -> Blocking:
    """Return the blocking of the least estimated time."""
    return min(settings(found, hardware), key=lambda knobs: estimate(found, knobs, hardware))


def apply(sch: Schedule, found: Filtering, knobs: Blocking) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    _kernel(sch, knobs)
    job, chunk = _output(sch, knobs)
    _product(sch, knobs, found, chunk)
    _input(sch, knobs, found, job)


def _kernel(sch: Schedule, knobs: Blocking) -> None:
    """Lay out the kernel as the product reads it, and transform it where it has been read.

    The build does it once.
    """
    block, stripes = sch.get_sblock(_KERNEL), knobs.chunk // knobs.columns

    def place(i: Var, j: Var, k: Var, c: Var) -> list[Expr]:
        stripe, column = c // knobs.columns, c % knobs.columns
        return [c // knobs.chunk, i, j, stripe % stripes, k, column]

    sch.transform_layout(block, ("write", 0), place)
    i, j, inputs, outputs = sch.get_loops(block)
    vectors, vector = sch.split(outputs, [None, knobs.width])
    sch.reorder(inputs, vectors, i, j, vector)
    sch.parallel(sch.fuse(inputs, vectors))
    sch.unroll(j)
    sch.vectorize(vector)


def _lanes(found: Filtering, knobs: Blocking) -> int:
    return math.gcd(found.inputs, knobs.width)


def _output(sch: Schedule, knobs: Blocking) -> tuple[LoopRV, LoopRV]:
    """Tile the output; return the loops over parallel blocks and over chunks of channels."""
    last = sch.get_child_blocks(sch.get_sblock("root"))[-1]
    tile, row, column, channel = sch.get_loops(last)
    block, tile = sch.split(tile, [None, knobs.tiles])
    part, chunk, vectors, vector = sch.split(
        channel, [knobs.parts, None, knobs.chunk // knobs.width, knobs.width]
    )
    sch.reorder(block, part, chunk, tile, vectors, row, column, vector)
    job = sch.fuse(block, part)
    spread(sch, sch.get_sblock(_PRODUCT), job, PRODUCTS)
    _follow(sch, (_TILE, _COLUMNS), vectors)
    write_out(sch, last, 3)
    return job, chunk


def _product(sch: Schedule, knobs: Blocking, found: Filtering, chunk: LoopRV) -> None:
    """Sum a block of tiles and channels in registers, for each position."""
    total = sch.get_sblock(_PRODUCT)
    result = sch.cache_write(total, 0, "global")
    _spread_positions(sch, result)
    sch.compute_at(result, chunk, preserve_unit_loops=True)
    i, j, tile, channel = sch.get_loops(result)[-4:]
    tiles, row = sch.split(tile, [None, knobs.rows])
    channels, vectors, vector = sch.split(
        channel, [None, knobs.columns // knobs.width, knobs.width]
    )
    sch.reorder(i, j, channels, tiles, row, vectors, vector)
    write_out(sch, result, 3)
    sch.compute_at(total, tiles, preserve_unit_loops=True)
    sch.set_scope(total, 0, "local")
    *_, row, channel, sums = sch.get_loops(total)
    sums, lane = sch.split(sums, [None, _lanes(found, knobs)])
    vectors, vector = sch.split(channel, [None, knobs.width])
    sch.reorder(sums, lane, row, vectors, vector)
    write_out(sch, total, 3)
    write_out(sch, sch.decompose_reduction(total, sums), 3)


def _input(sch: Schedule, knobs: Blocking, found: Filtering, job: LoopRV) -> None:
    """Transform the patches of a block, a vector of channels at a time."""
    last, lanes = sch.get_sblock(_INPUT), _lanes(found, knobs)

    def place(i: Var, j: Var, p: Var, k: Var) -> list[Expr]:
        return [i, j, p // knobs.rows, k // lanes, p % knobs.rows, k % lanes]

    sch.transform_layout(last, ("write", 0), place)
    _spread_positions(sch, last)
    sch.compute_at(last, job, preserve_unit_loops=True)
    i, j, tile, channel = sch.get_loops(last)[-4:]
    vectors, vector = sch.split(channel, [None, lanes])
    sch.reorder(tile, vectors, i, j, vector)
    _follow(sch, (_ROWS, _PATCH), vectors)
    write_out(sch, last, 3)


def _follow(sch: Schedule, names: tuple[str, ...], loop: LoopRV) -> None:
    """Compute stages of a transform for an iteration of a loop, in registers."""
    for name in names:
        stage = sch.get_sblock(name)
        sch.compute_at(stage, loop, preserve_unit_loops=True)
        sch.set_scope(stage, 0, "local")
        write_out(sch, stage, 4)


def _spread_positions(sch: Schedule, block: SBlockRV) -> None:
    """Keep positions an odd number of cache lines apart, or they would share a set of a cache."""
    sch.storage_align(block, 0, 1, 2 * _LINE // BYTES, _LINE // BYTES)
