"""Template for 3x3 convolutions by Winograd's minimal filtering.

The implementation `winograd` writes these functions; see `implementations/filtering.py` for the
algorithm and its stages. Blocks of tiles run in parallel, and blocks of output channels too where
there are few tiles. A block transforms its patches once, into a buffer that fits its core's cache.
Then, for one chunk of output channels after the other, it multiplies at each position of a tile,
sums in registers, and transforms the sums back into the output, with the epilogue.

The loops of F(4x4, 3x3), which has 6 x 6 positions:

    transform kernel: [6, 6, inputs, outputs]                      # by the build, once
    for block, part in parallel(tiles / knobs.tiles, knobs.parts):
        transform patches: [6, 6, knobs.tiles, inputs]             # of this block
        for chunk in range(outputs / parts / knobs.chunk):
            for i, j in grid(6, 6):                                # a matrix product each
                product[i, j] = patches[i, j] @ kernel[i, j, :, chunk]
            transform back: product [6, 6] to outputs [4, 4], then bias, activation

A transform is a loop over the columns of a tile, then one over the rows of what that leaves.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from tvm.ir import Expr
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Bind, For, IfThenElse, Stmt, Var, const, stmt_seq
from tvm_ffi import structural_map

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    DynamicSizes,
    find_min_extent,
    read_dynamic_sizes,
)
from autopipe.compiler.loops.copy_loops import copy_root
from autopipe.environment.machines import LINE_BYTES
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis import filtering_cost
from autopipe.schedules.analysis.blocks import is_large_enough, parts_of
from autopipe.schedules.analysis.filtering_cost import BYTES, Blocking, Filtering
from autopipe.schedules.analysis.filtering_tiles import (
    PRODUCT_BLOCK,
    find_tile_count,
    round_up_tiles,
)
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.guarded import guard_parallel_loops
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import PRODUCTS
from autopipe.schedules.primitives import (
    compute_locally,
    make_schedule,
    parallelize_loop,
    write_out,
)
from autopipe.schedules.templates.template import Template

_PATCH, _ROWS, _INPUT = "winograd_patch", "winograd_rows", "winograd_input"
_KERNEL = "winograd_kernel"
_COLUMNS, _TILE = "winograd_columns", "winograd_tile"

MAX_VECTORS = 4
"""Maximum vectors of output channels that are summed in registers."""

MAX_TILES = 64
"""Maximum tiles in a parallel block."""

OPEN_TILES = 24
"""Maximum tiles in a parallel block where their number is dynamic: few tiles make one block."""

_LONG: Final = 8 * PRODUCTS
"""Products that are too many for one thread, even if padding wastes work."""

_HIDING: Final = 8
"""Minimum vectors of sums of a group of tiles: they hide the latency of 4 cycles in 2 ports."""

MAX_CHUNK = 256
"""Maximum output channels between product and inverse transform."""

_STAGES = (_PATCH, _ROWS, _INPUT, _KERNEL, PRODUCT_BLOCK, _COLUMNS, _TILE)


class _TileLoops(NamedTuple):
    """The loops that run over blocks, and over the tiles of a block."""

    job: LoopRV
    input_tile: LoopRV
    row_group: LoopRV
    output_tile: LoopRV


class WinogradTemplate(Template[Filtering, Blocking]):
    """The transforms and products of a Winograd convolution."""

    name = "winograd"
    version = schedule_version("winograd")
    serves_dynamic = True

    def match(self, sch: Schedule) -> Filtering | None:
        """Match the stages of a function, or return None if it has none."""
        blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
        names = {block.name_hint: block for block in blocks}
        if not names.keys() >= set(_STAGES):
            return None
        rows, columns, tiles, outputs, inputs = (
            int(axis.dom.extent) for axis in names[PRODUCT_BLOCK].iter_vars
        )
        return Filtering(rows * columns, tiles, inputs, outputs)

    def settings(self, filtering: Filtering, hardware: HardwareParams) -> Iterator[Blocking]:
        """Yield every blocking whose sums fit the registers."""
        width = math.gcd(filtering.outputs, hardware.lanes(8 * BYTES))
        for vectors in list_divisors(filtering.outputs // width, MAX_VECTORS):
            columns = vectors * width
            free = hardware.registers - vectors - 1  # for a row of weights and one broadcast value
            for rows in list_divisors(filtering.tiles, free // vectors):
                for tiles, parts, chunk in _list_block_shapes(filtering, hardware, rows, columns):
                    yield Blocking(tiles, parts, chunk, rows, columns, width)

    def estimate(self, filtering: Filtering, knobs: Blocking, hardware: HardwareParams) -> float:
        """Estimate the time of a setting, in cycles."""
        return filtering_cost.estimate_filtering(filtering, knobs, hardware)

    def apply(self, sch: Schedule, filtering: Filtering, knobs: Blocking) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        dynamic_sizes = read_dynamic_sizes(sch.mod["main"])
        if dynamic_sizes is None:
            _schedule_stages(sch, filtering, knobs)
            return
        tiles = find_tile_count(sch)
        rows = _choose_rows(knobs, find_min_extent(tiles, dynamic_sizes))
        root = _schedule_by_blocks(sch, filtering, replace(knobs, rows=rows))
        has_many = _has_many_tiles(tiles, filtering, dynamic_sizes)
        sch.state.replace(sch.get_sref(sch.get_sblock("root")), root)
        guard_parallel_loops(sch, _INPUT, pays=has_many)


WINOGRAD: Final = WinogradTemplate()


def _list_block_shapes(
    filtering: Filtering, hardware: HardwareParams, rows: int, columns: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (tiles in a block, parts of the channels, channels in a chunk)."""
    for row_groups in list_divisors(filtering.tiles // rows, MAX_TILES // rows):
        for parts in list_divisors(filtering.outputs // columns, hardware.cores):
            strips = filtering.outputs // parts // columns
            for strips_at_once in list_divisors(strips, MAX_CHUNK // columns):
                yield row_groups * rows, parts, strips_at_once * columns


def _choose_rows(knobs: Blocking, fewest: int) -> int:
    """Choose the tiles that are summed in registers at once: they divide the fewest that there are.

    Example: with 4, 8 or more tiles a group of 5 becomes one of 4, without padding.
    """
    most, vectors = min(knobs.rows, OPEN_TILES), knobs.columns // knobs.width
    fitting = [rows for rows in list_divisors(fewest, most) if rows * vectors >= _HIDING]
    return max(fitting, default=most)


def _schedule_by_blocks(sch: Schedule, filtering: Filtering, knobs: Blocking) -> SBlock:
    """Schedule a function of dynamic shapes in blocks of at most `OPEN_TILES` tiles."""
    tiles = max(1, min(knobs.tiles, OPEN_TILES) // knobs.rows) * knobs.rows
    rounded_schedule = make_schedule(round_up_tiles(sch, tiles))
    blocking = replace(knobs, tiles=tiles)
    loops = _schedule_stages(rounded_schedule, filtering, blocking)
    return _skip_padding(rounded_schedule, blocking, loops, find_tile_count(sch))


def _skip_padding(sch: Schedule, knobs: Blocking, loops: _TileLoops, tiles: Expr) -> SBlock:
    """Return the root block without the work on groups of tiles that are padding alone.

    Such groups end the last block. A group has the tiles that are summed in registers at once.
    """
    root, job = sch.get(sch.get_sblock("root")), sch.get(loops.job)
    steps = ((loops.input_tile, 1), (loops.row_group, knobs.rows), (loops.output_tile, 1))
    variables = [(sch.get(loop).loop_var, step) for loop, step in steps]
    before = job.loop_var // knobs.parts * (knobs.tiles // knobs.rows)
    groups = Var("groups", job.loop_var.ty)

    def skip(loop: For) -> For:
        if loop.loop_var.same_as(job.loop_var):
            bind = Bind(groups, parts_of(tiles, knobs.rows) - before)
            return _with_body(loop, stmt_seq(bind, loop.body))
        step = next((step for var, step in variables if var.same_as(loop.loop_var)), None)
        if step is None:
            return loop
        left = groups - 1 - loop.loop_var * step // knobs.rows
        is_used = left >> const(63, left.ty) == 0  # a comparison would bound buffers by the sizes
        return _with_body(loop, IfThenElse(is_used, loop.body, None))

    return copy_root(root, structural_map(root.body, (For, skip)))


def _with_body(loop: For, body: Stmt) -> For:
    return For(loop.loop_var, loop.min, loop.extent, loop.kind, body)


def _has_many_tiles(tiles: Expr, filtering: Filtering, dynamic_sizes: DynamicSizes) -> bool | Expr:
    """Tell whether there are so many tiles that threads pay.

    They do not for few products, nor where one block has nearly all tiles, unless these are much
    work for one thread.
    """
    products_per_tile = filtering.positions * filtering.inputs * filtering.outputs
    most = max(PRODUCTS // products_per_tile, min(2 * OPEN_TILES // 3, _LONG // products_per_tile))
    return is_large_enough([tiles], most + 1, dynamic_sizes)


def _schedule_stages(sch: Schedule, filtering: Filtering, knobs: Blocking) -> _TileLoops:
    _schedule_kernel(sch, knobs)
    job, chunk, output_tile = _schedule_output(sch, knobs)
    row_group = _schedule_product(sch, knobs, filtering, chunk)
    input_tile = _schedule_input(sch, knobs, filtering, job)
    return _TileLoops(job, input_tile, row_group, output_tile)


def _schedule_kernel(sch: Schedule, knobs: Blocking) -> None:
    """Lay out the transformed kernel in the order in which the product reads it.

    The layout is [chunk, row, column, stripe, input channel, output channel of the stripe]; the
    build transforms the kernel once.
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


def _choose_input_lanes(filtering: Filtering, knobs: Blocking) -> int:
    """Choose the input channels that the transform of the input computes at once."""
    return math.gcd(filtering.inputs, knobs.width)


def _schedule_output(sch: Schedule, knobs: Blocking) -> tuple[LoopRV, LoopRV, LoopRV]:
    """Tile the output; return the loops over parallel blocks, chunks of channels, and tiles."""
    last = sch.get_child_blocks(sch.get_sblock("root"))[-1]
    tile, row, column, channel = sch.get_loops(last)
    block, tile = sch.split(tile, [None, knobs.tiles])
    part, chunk, vectors, vector = sch.split(
        channel, [knobs.parts, None, knobs.chunk // knobs.width, knobs.width]
    )
    sch.reorder(block, part, chunk, tile, vectors, row, column, vector)
    job = sch.fuse(block, part)
    parallelize_loop(sch, sch.get_sblock(PRODUCT_BLOCK), job, PRODUCTS)
    write_out(sch, compute_locally(sch, sch.get_sblock(_TILE), row), 4)
    _compute_columns(sch, _COLUMNS, vectors)
    write_out(sch, last, 2)
    return job, chunk, tile


def _schedule_product(
    sch: Schedule, knobs: Blocking, filtering: Filtering, chunk: LoopRV
) -> LoopRV:
    """Sum `rows` tiles x `columns` channels in registers, for each position.

    Returns the loop over groups of `rows` tiles.
    """
    total = sch.get_sblock(PRODUCT_BLOCK)
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
    compute_locally(sch, total, tiles)
    *_, row, channel, sums = sch.get_loops(total)
    sums, lane = sch.split(sums, [None, _choose_input_lanes(filtering, knobs)])
    vectors, vector = sch.split(channel, [None, knobs.width])
    sch.reorder(sums, lane, row, vectors, vector)
    write_out(sch, total, 3)
    write_out(sch, sch.decompose_reduction(total, sums), 3)
    return tiles


def _schedule_input(sch: Schedule, knobs: Blocking, filtering: Filtering, job: LoopRV) -> LoopRV:
    """Transform the patches of a block in vectors of input channels; return the loop over tiles."""
    last, lanes = sch.get_sblock(_INPUT), _choose_input_lanes(filtering, knobs)

    def place(i: Var, j: Var, p: Var, k: Var) -> list[Expr]:
        return [i, j, p // knobs.rows, k // lanes, p % knobs.rows, k % lanes]

    sch.transform_layout(last, ("write", 0), place)
    _spread_positions(sch, last)
    sch.compute_at(last, job, preserve_unit_loops=True)
    i, j, tile, channel = sch.get_loops(last)[-4:]
    vectors, vector = sch.split(channel, [None, lanes])
    sch.reorder(tile, vectors, i, j, vector)
    column = _compute_columns(sch, _ROWS, vectors)
    write_out(sch, compute_locally(sch, sch.get_sblock(_PATCH), column), 4)
    write_out(sch, last, 2)
    return tile


def _compute_columns(sch: Schedule, name: str, loop: LoopRV) -> LoopRV:
    """Compute a stage inside a loop, one column of a tile at a time; return the loop over columns.

    A column of 8 vectors fits the registers, a tile of 64 does not. Unrolled, it is slower.
    """
    stage = compute_locally(sch, sch.get_sblock(name), loop)
    row, column, vector = sch.get_loops(stage)[-3:]
    sch.reorder(column, row, vector)
    write_out(sch, stage, 2)
    return column


def _spread_positions(sch: Schedule, block: SBlockRV) -> None:
    """Keep the positions of a tile an odd number of cache lines apart.

    A power of two apart, all 36 positions would share one set of the cache; the odd distance saved
    up to 37 % of the time.
    """
    sch.storage_align(block, 0, 1, 2 * LINE_BYTES // BYTES, LINE_BYTES // BYTES)
