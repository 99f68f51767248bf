"""Template for depthwise convolutions, pooling and means over images.

A tile of outputs, `rows` neighbours along the last but one axis by `columns` along the last axis,
is reduced in registers. Each row of the input that the windows of a tile touch is read once, with
zeros past the edge, and serves all windows. So no padded copy of the input is made, unless windows
extend along the vectors, as in NCHW; then one plane is padded at a time. Weights are packed so that
a tile reads them in order.

Example: a depthwise 3x3 convolution of [1, 56, 56, 96] (NHWC), tiles of 4 x 32, vectors of 16.

    packed = w as [3, 3, 3, 1, 32]                        # packed[c // 32, r, s, 0, c % 32]
    for i in parallel(56):                                # a row of the output
        for strip, j in grid(3, 14):                      # 32 channels, 4 outputs along the row
            sums = zeros(4, 32)                           # 8 registers
            for r in unrolled(3):                         # rows of the window
                line = padded x[i + r - 1, 4 * j - 1 : 4 * j + 5, strip]        # [6, 32]
                for s, n in unrolled(3, 4):
                    sums[n] += line[n + s] * packed[strip, r, s, 0]
            y[i, 4 * j : 4 * j + 4, strip] = sums
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV

from autopipe.compiler.dynamic_sizes.kernel_sizes import DynamicSizes, read_dynamic_sizes
from autopipe.compiler.graph.weights import MARK
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import SPATIAL
from autopipe.schedules.analysis.windows import NARROW, Windows, inline_copies, match_windows
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import (
    inline_blocks,
    parallelize_loop,
    rewrite_function,
    write_out,
)
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling.window_tile import (
    MAX_VECTORS,
    WindowTile,
    can_fit_tile,
    choose_tile_threshold,
    count_input_elements,
    estimate_efficiency,
    find_row_extent,
    find_threshold,
    list_strips,
    list_tile_rows,
)
from autopipe.schedules.tiling.windows import PAIR, UNROLLED, OpenWindows


class WindowTemplate(Template[Windows, WindowTile]):
    """Depthwise convolutions and pooling: outputs of one channel share what they read."""

    name = "window"
    version = schedule_version("window")
    serves_dynamic = True

    def match(self, sch: Schedule) -> Windows | None:
        """Match the function, or return None if the template does not apply."""
        windows = match_windows(sch)
        if windows is None or not windows.wide:
            return None
        return None if windows.along and len(windows.extents) <= PAIR else windows

    def is_asked_last(self, windows: Windows) -> bool:
        """Tell whether outputs share no inputs; the wider tiles of `contraction` are faster then.

        The sums of the columns of [512, 300] take 8.7 us there, and 13.5 us as windows.
        """
        return windows.once and windows.weights is None and not windows.before

    def settings(
        self, windows: Windows, hardware: HardwareParams, *, overlap: bool | None = None
    ) -> Iterator[WindowTile]:
        """Yield every tile whose sums, input row and weights for it fit the registers.

        Tiles divide the outputs, or overlap. Unless `overlap` is given, they overlap where no
        vector divides the last axis, or no full vector where functions (exp, erf) are computed.
        A tile comes once more where the processor decides otherwise on threads than the default.
        """
        lanes = hardware.lanes(windows.bits)
        if overlap is None:
            overlap = windows.extents[-1] % (lanes if windows.computes else NARROW) != 0
        planes = max(1, len(windows.extents) - PAIR)
        for columns, width in list_strips(windows, lanes, overlap=overlap):
            if columns // width > MAX_VECTORS:
                continue
            for rows in list_tile_rows(windows, hardware.registers, overlap=overlap):
                single = columns == width == rows * width
                if single or can_fit_tile(windows, rows, columns, width, hardware):
                    for fused_loops in range(planes, planes + (1 if windows.along else PAIR + 1)):
                        tile = WindowTile(rows, columns, width, fused_loops)
                        yield tile
                        threshold = choose_tile_threshold(windows, tile, hardware)
                        if threshold is not None:
                            yield replace(tile, shared_from=threshold)

    def fill(self, windows: Windows, hardware: HardwareParams) -> WindowTile:
        """Return the tile of the best estimate; threads share it where a second one pays."""
        tile = replace(super().fill(windows, hardware), shared_from=None)
        return replace(tile, shared_from=choose_tile_threshold(windows, tile, hardware))

    def estimate(self, windows: Windows, tile: WindowTile, hardware: HardwareParams) -> float:
        """Estimate the relative time of a tile, without a unit."""
        return 1 / estimate_efficiency(tile, windows, hardware)

    def apply(self, sch: Schedule, windows: Windows, tile: WindowTile) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        inline_copies(sch)
        inline_blocks(sch, (*windows.before[:-1], *windows.after[:-1]))
        block = sch.get_sblock(windows.name)
        pack_weights(sch, block, windows, tile.columns)
        dynamic_sizes = read_dynamic_sizes(sch.mod["main"])
        if dynamic_sizes is None and _has_overlapping_tiles(windows, tile):
            dynamic_sizes = DynamicSizes({}, {}, {})
        if dynamic_sizes is None:
            _schedule_tiles(sch, block, windows, tile)
            return
        if windows.along:
            raise ScheduleError("windows extend along a dynamic axis")
        nest, loops, buffers = build_windows(sch, windows, tile, dynamic_sizes, pads=True)
        loops.append(nest.write(find_threshold(windows, tile.shared_from)))
        rewrite_function(sch, tvm.tirx.stmt_seq(*loops), buffers)


WINDOW: Final = WindowTemplate()


def _has_overlapping_tiles(windows: Windows, tile: WindowTile) -> bool:
    """Tell whether tiles overlap, which TVM's primitives cannot express."""
    return bool(windows.extents[-1] % tile.columns or find_row_extent(windows) % tile.rows)


def build_windows(
    sch: Schedule, windows: Windows, tile: WindowTile, dynamic_sizes: DynamicSizes, *, pads: bool
) -> tuple[OpenWindows, list[tvm.tirx.Stmt], list[tvm.ir.Var]]:
    """Build the tiles of windows, and the loops and buffers of the copy of their weights.

    `pads` tells whether tiles compute the padded input; else another nest does.
    """
    names = {*windows.before, windows.name, *windows.after}
    blocks = {sch.get(rv).name_hint: rv for rv in sch.get_child_blocks(sch.get_sblock("root"))}
    packing = [rv for name, rv in blocks.items() if name not in names]
    before, last = (
        sch.get(blocks[chain[-1]]) if chain else None
        for chain in (windows.before if pads else (), windows.after)
    )
    nest = OpenWindows(
        windows, sch.get(blocks[windows.name]), before, last, dynamic_sizes, tile.rows,
        tile.columns, tile.width, tile.shared,
    )  # fmt: skip
    loops: list[tvm.tirx.Stmt] = [sch.get(sch.get_loops(rv)[0]) for rv in packing]
    return nest, loops, [sch.get(rv).writes[0].source for rv in packing]


def _schedule_tiles(sch: Schedule, block: SBlockRV, windows: Windows, tile: WindowTile) -> None:
    """Split the outputs into tiles that divide them, by schedule primitives of TVM."""
    last = windows.after[-1:]
    result = sch.get_sblock(last[0]) if last else sch.cache_write(block, 0, "global")
    parallel_loop, inner = _split_into_tiles(sch, result, windows, tile)
    sch.compute_at(block, inner, preserve_unit_loops=True)
    vectors, vector = sch.split(sch.get_loops(result)[-1], [None, tile.width])
    sch.vectorize(vector)
    sch.unroll(vectors)
    if windows.before and windows.along:
        sch.compute_at(sch.get_sblock(windows.before[-1]), parallel_loop)
    _reduce_in_registers(sch, block, windows, tile)


def _split_into_tiles(
    sch: Schedule, result: SBlockRV, windows: Windows, tile: WindowTile
) -> tuple[LoopRV, LoopRV]:
    """Split the outputs into tiles; return the parallel loop and the innermost loop over tiles."""
    *outer, columns = sch.get_loops(result)
    rows = outer.pop() if outer else sch.add_unit_loop(columns)
    row_tile, row = sch.split(rows, [None, tile.rows])
    column_tile, column = sch.split(columns, [None, tile.columns])
    sch.reorder(*outer, column_tile, row_tile, row, column)
    tiles = [*outer, column_tile, row_tile]
    parallel_loop = sch.fuse(*tiles[: tile.shared])
    block = sch.get_sblock(windows.name)
    parallelize_loop(sch, block, parallel_loop, find_threshold(windows, tile.shared_from))
    return parallel_loop, [parallel_loop, *tiles[tile.shared :]][-1]


def _reduce_in_registers(
    sch: Schedule, block: SBlockRV, windows: Windows, tile: WindowTile
) -> None:
    """Reorder and unroll the loops of a tile so that its results stay in registers."""
    loops = sch.get_loops(block)[-len(windows.extents) - len(windows.window) :]
    *outer, column = loops[: len(windows.extents)]
    row = outer[-1] if outer else sch.add_unit_loop(column)
    reductions = loops[len(windows.extents) :]
    across = [reductions[axis] for axis in windows.across]
    outer_reductions = [loop for axis, loop in enumerate(reductions) if axis not in windows.across]
    vectors, vector = sch.split(column, [None, tile.width])
    sch.reorder(*outer_reductions, *across, row, vectors, vector)
    sums = tile.rows * tile.columns // tile.width
    if sums * windows.taps_across <= UNROLLED:
        for loop in across:
            sch.unroll(loop)
    write_out(sch, block, 3)
    start = sch.decompose_reduction(block, [*outer_reductions, *across][0])
    write_out(sch, start, 3)
    if windows.before and not windows.along:
        sparse = count_input_elements(windows, tile.rows) > tile.rows * windows.taps_across
        level = across if sparse or not outer_reductions else outer_reductions
        _read_row(sch, sch.get_sblock(windows.before[-1]), level[-1], tile.width)
    if sums * windows.taps <= UNROLLED:
        for loop in outer_reductions:
            sch.unroll(loop)


def _read_row(sch: Schedule, block: SBlockRV, loop: LoopRV, width: int) -> None:
    """Compute a row of the padded input inside a loop, in registers."""
    sch.compute_at(block, loop, preserve_unit_loops=True)
    *_, column = sch.get_loops(block)
    sch.split(column, [None, width])
    write_out(sch, block, 3)


def pack_weights(sch: Schedule, block: SBlockRV, windows: Windows, columns: int) -> None:
    """Pack weights as [strip, other axes, column], once at build time.

    Overlapping strips read from one strip of all columns. Does nothing where there are no weights,
    or where their layout is fixed.
    """
    if windows.weights is None or not windows.free:
        return
    if windows.extents[-1] % columns:
        columns = windows.extents[-1]
    *_, last = (axis.var for axis in sch.get(block).iter_vars if axis.iter_type == SPATIAL)
    region = sch.get(block).reads[windows.weights].region
    at = next(i for i, part in enumerate(region) if part.min.same_as(last))
    copy = sch.cache_read(block, windows.weights, "global")

    def tiled(*index: tvm.tirx.Var) -> list[tvm.ir.Expr]:
        other_axes = index[:at] + index[at + 1 :]
        return [index[at] // columns, *other_axes, index[at] % columns]

    sch.transform_layout(block, ("read", windows.weights), tiled)
    sch.annotate(copy, MARK, True)  # noqa: FBT003 - TVM's way
