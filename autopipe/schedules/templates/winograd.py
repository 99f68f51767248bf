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
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tvm.ir import Expr, IRModule
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import FloorDiv, IfThenElse, Mul, Stmt, Var, stmt_seq
from tvm_ffi import StructuralMutator, structural_equal, structural_mutate

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes, read_dynamic_sizes
from autopipe.compiler.loops.copy_loops import copy_loop_nest
from autopipe.environment.machines import LINE_BYTES
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis import filtering_cost
from autopipe.schedules.analysis.blocks import is_large_enough, parts_of
from autopipe.schedules.analysis.expressions import find_nodes
from autopipe.schedules.analysis.filtering_cost import BYTES, Blocking, Filtering
from autopipe.schedules.divisors import list_divisors
from autopipe.schedules.guarded import list_statements
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.parallel_work import PRODUCTS
from autopipe.schedules.primitives import parallelize_loop, write_out
from autopipe.schedules.templates.template import Template, make_schedule

_PATCH, _ROWS, _INPUT = "winograd_patch", "winograd_rows", "winograd_input"
_KERNEL, _PRODUCT = "winograd_kernel", "winograd_product"
_COLUMNS, _TILE = "winograd_columns", "winograd_tile"

MAX_VECTORS = 4
"""Maximum vectors of output channels that are summed in registers."""

MAX_TILES = 64
"""Maximum tiles in a parallel block."""

OPEN_TILES = 24
"""Maximum tiles in a parallel block where their number is dynamic: the last block is padded."""

FEW_TILES = 4
"""Maximum tiles in a block where there are few, which run on one thread."""

_LONG: Final = 8 * PRODUCTS
"""Products that are too many for one thread, even if padding wastes work."""

MAX_CHUNK = 256
"""Maximum output channels between product and inverse transform."""

_STAGES = (_PATCH, _ROWS, _INPUT, _KERNEL, _PRODUCT, _COLUMNS, _TILE)


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
            int(axis.dom.extent) for axis in names[_PRODUCT].iter_vars
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
        large, small = (
            _schedule_by_blocks(sch, filtering, knobs, most) for most in (OPEN_TILES, FEW_TILES)
        )
        large_root, small_root = (one.mod["main"].body.block for one in (large, small))
        root = _build_branch(
            large_root, small_root, _has_few_tiles(_find_tile_count(sch), filtering, dynamic_sizes)
        )
        sch.state.replace(sch.get_sref(sch.get_sblock("root")), root)


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


def _schedule_by_blocks(
    sch: Schedule, filtering: Filtering, knobs: Blocking, most: int
) -> Schedule:
    """Schedule a function of dynamic shapes in blocks of at most `most` tiles."""
    rows = min(knobs.rows, most)
    tiles = max(1, min(knobs.tiles, most) // rows) * rows
    parts = knobs.parts if most == OPEN_TILES else 1
    rounded_schedule, blocking = (
        make_schedule(_round_up_tiles(sch, tiles)),
        replace(knobs, tiles=tiles, rows=rows, parts=parts),
    )
    _schedule_stages(rounded_schedule, filtering, blocking, parallel=most == OPEN_TILES)
    return rounded_schedule


def _has_few_tiles(tiles: Expr, filtering: Filtering, dynamic_sizes: DynamicSizes) -> bool | Expr:
    """Tell whether tiles are so few that small blocks on one thread are faster.

    They are where threads do not pay, and where a large block would be mostly padding, unless these
    tiles are much work for one thread.
    """
    products_per_tile = filtering.positions * filtering.inputs * filtering.outputs
    most = max(PRODUCTS // products_per_tile, min(2 * OPEN_TILES // 3, _LONG // products_per_tile))
    has_many = is_large_enough([tiles], most + 1, dynamic_sizes)
    return not has_many if isinstance(has_many, bool) else tiles <= most


def _build_branch(large: SBlock, small: SBlock, has_few_tiles: bool | Expr) -> SBlock:  # noqa: FBT001 - a condition
    """Build a root block that branches to one of two; both read the same transformed kernel."""
    if isinstance(has_few_tiles, bool):
        return small if has_few_tiles else large
    roots = (large, small)
    kernels, jobs = zip(*map(list_statements, roots), strict=True)
    large_output, small_output = (_find_written_buffer(kernel) for kernel in kernels)
    small_loops = copy_loop_nest(jobs[1], [(small_output, large_output)])
    buffers = [one for root in roots for one in root.alloc_buffers if not one.same_as(small_output)]
    return SBlock(
        [], large.reads, large.writes, large.name_hint,
        stmt_seq(kernels[0], IfThenElse(has_few_tiles, small_loops, jobs[0])),
        alloc_buffers=buffers, annotations=large.annotations,
    )  # fmt: skip


def _find_written_buffer(nest: Stmt) -> Var:
    """Find the buffer that the only block of a nest writes."""
    blocks = find_nodes(nest, SBlock)
    (block,) = blocks
    return block.writes[0].source


def _schedule_stages(
    sch: Schedule, filtering: Filtering, knobs: Blocking, *, parallel: bool = True
) -> None:
    _schedule_kernel(sch, knobs)
    job, chunk = _schedule_output(sch, knobs, parallel=parallel)
    _schedule_product(sch, knobs, filtering, chunk)
    _schedule_input(sch, knobs, filtering, job)


def _find_padded_tiles(sch: Schedule) -> Mul:
    """Find the dynamic number of tiles, rounded up to whole blocks.

    Raises ScheduleError if it is not written as `(count + 9) // 10 * 10`.
    """
    tile_extent = sch.get(sch.get_sblock(_PRODUCT)).iter_vars[2].dom.extent
    if not (isinstance(tile_extent, Mul) and isinstance(tile_extent.a, FloorDiv)):
        raise ScheduleError("the number of tiles is not rounded up")
    return tile_extent


def _find_tile_count(sch: Schedule) -> Expr:
    """Find the dynamic number of tiles, before rounding up."""
    padded_tiles = _find_padded_tiles(sch)
    tiles: Expr = Analyzer().simplify(padded_tiles.a.a - (padded_tiles.b - 1))
    return tiles


def _round_up_tiles(sch: Schedule, block: int) -> IRModule:
    """Round the dynamic number of tiles of a function up to blocks of another size."""
    padded_tiles = _find_padded_tiles(sch)
    rounded_tiles = parts_of(_find_tile_count(sch), block) * block

    def changed(node: Expr, mutator: StructuralMutator) -> Any:  # noqa: ANN401 - any node
        return (
            rounded_tiles if structural_equal(node, padded_tiles) else mutator.default_mutate(node)
        )

    return IRModule({"main": structural_mutate(sch.mod["main"], [(Mul, changed)])})


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


def _schedule_output(sch: Schedule, knobs: Blocking, *, parallel: bool) -> tuple[LoopRV, LoopRV]:
    """Tile the output; return the loops over parallel blocks and over chunks of channels."""
    last = sch.get_child_blocks(sch.get_sblock("root"))[-1]
    tile, row, column, channel = sch.get_loops(last)
    block, tile = sch.split(tile, [None, knobs.tiles])
    part, chunk, vectors, vector = sch.split(
        channel, [knobs.parts, None, knobs.chunk // knobs.width, knobs.width]
    )
    sch.reorder(block, part, chunk, tile, vectors, row, column, vector)
    job = sch.fuse(block, part)
    if parallel:
        parallelize_loop(sch, sch.get_sblock(_PRODUCT), job, PRODUCTS)
    _compute_stages_at(sch, (_TILE, _COLUMNS), vectors)
    write_out(sch, last, 3)
    return job, chunk


def _schedule_product(sch: Schedule, knobs: Blocking, filtering: Filtering, chunk: LoopRV) -> None:
    """Sum `rows` tiles x `columns` channels in registers, for each position."""
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
    sums, lane = sch.split(sums, [None, _choose_input_lanes(filtering, knobs)])
    vectors, vector = sch.split(channel, [None, knobs.width])
    sch.reorder(sums, lane, row, vectors, vector)
    write_out(sch, total, 3)
    write_out(sch, sch.decompose_reduction(total, sums), 3)


def _schedule_input(sch: Schedule, knobs: Blocking, filtering: Filtering, job: LoopRV) -> None:
    """Transform the patches of a block, in vectors of input channels."""
    last, lanes = sch.get_sblock(_INPUT), _choose_input_lanes(filtering, knobs)

    def place(i: Var, j: Var, p: Var, k: Var) -> list[Expr]:
        return [i, j, p // knobs.rows, k // lanes, p % knobs.rows, k % lanes]

    sch.transform_layout(last, ("write", 0), place)
    _spread_positions(sch, last)
    sch.compute_at(last, job, preserve_unit_loops=True)
    i, j, tile, channel = sch.get_loops(last)[-4:]
    vectors, vector = sch.split(channel, [None, lanes])
    sch.reorder(tile, vectors, i, j, vector)
    _compute_stages_at(sch, (_ROWS, _PATCH), vectors)
    write_out(sch, last, 3)


def _compute_stages_at(sch: Schedule, names: tuple[str, ...], loop: LoopRV) -> None:
    """Compute the named stages inside a loop, in registers."""
    for name in names:
        stage = sch.get_sblock(name)
        sch.compute_at(stage, loop, preserve_unit_loops=True)
        sch.set_scope(stage, 0, "local")
        write_out(sch, stage, 4)


def _spread_positions(sch: Schedule, block: SBlockRV) -> None:
    """Keep the positions of a tile an odd number of cache lines apart.

    A power of two apart, all 36 positions would share one set of the cache; the odd distance saved
    up to 37 % of the time.
    """
    sch.storage_align(block, 0, 1, 2 * LINE_BYTES // BYTES, LINE_BYTES // BYTES)
