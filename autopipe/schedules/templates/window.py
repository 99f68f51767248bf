"""Template for depthwise convolutions, pooling and means over images.

A tile of outputs, `rows` neighbours along the last but one axis by `columns` along the last, is
reduced in registers. Every row of the input that its windows touch is read once, with what lies
past the edge, and serves all of them: no padded copy of the input is made, unless windows extend
along vectors too; then there is one for a plane at a time. Weights are packed so that a tile reads
them in order.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from autopipe.compiler.graph.weights import MARK
from autopipe.schedules.analysis.blocks import SPATIAL
from autopipe.schedules.analysis.windows import Windows, inline_copies, recognize
from autopipe.schedules.divisors import divisors
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import PRODUCTS, spread
from autopipe.schedules.write_out import write_out

NAME: Final = "window"
VERSION: Final = 1

MAX_VECTORS = 4
"""Vectors in a row of a tile."""

CHAINS = 8
"""Independent sums that hide the latency of an addition or a fused multiply-add."""

AHEAD = 256
"""Operations that a processor looks ahead: sums of short windows overlap with the next ones."""

LINE = 512
"""Bits in a cache line. Input that is read a single line here and there comes slowly."""

STACK = 1024
"""Bytes of a buffer that TVM no longer puts on the stack, but asks the runtime for."""

NARROW = 4
"""Elements in the least vector that is worth the trouble."""

UNROLLED = 512
"""Vector operations that are written out one after the other; more of them only take room."""

LEAST: Final = PRODUCTS // 2
"""Elements reduced that are worth a second thread; memory is slower than arithmetic."""


_PAIR: Final = 2
"""A tile has two axes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs."""

    rows: int
    """Outputs along the last but one axis; divides it."""
    columns: int
    """Outputs along the last axis; divides it."""
    width: int
    """Elements in a vector, a power of two; divides `columns`."""
    shared: int
    """How many of the loops over tiles are divided among threads, from the outermost on."""


def match(sch: Schedule) -> Windows | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    found = recognize(sch)
    if found is None or found.extents[-1] % NARROW:
        return None
    return None if found.along and len(found.extents) <= _PAIR else found


def settings(found: Windows, hardware: Hardware) -> Iterator[Tile]:
    """Yield every tile whose sums, input row and weights for it fit the registers."""
    lanes = hardware.lanes(found.bits)
    planes = max(1, len(found.extents) - _PAIR)
    for columns in divisors(found.extents[-1], MAX_VECTORS * lanes):
        width = math.gcd(columns, lanes)
        if columns // width > MAX_VECTORS:
            continue
        for rows in divisors(_extent(found), hardware.registers):
            if columns == width == rows * width or _fits(found, rows, columns, hardware):
                for shared in range(planes, planes + (1 if found.along else _PAIR + 1)):
                    yield Tile(rows, columns, width, shared)


def fill(found: Windows, hardware: Hardware) -> Tile:
    """Return the knobs for a processor, without measuring."""
    return max(settings(found, hardware), key=lambda tile: _promise(tile, found, hardware))


def estimate(found: Windows, tile: Tile, hardware: Hardware) -> float:
    """Estimate the time of a tile, in no unit."""
    return 1 / _promise(tile, found, hardware)


def apply(sch: Schedule, found: Windows, tile: Tile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    inline_copies(sch)
    for name in (*found.before[:-1], *found.after[:-1]):
        sch.compute_inline(sch.get_sblock(name))
    block = sch.get_sblock(found.name)
    if found.weights is not None and found.free:
        _pack(sch, block, found.weights, tile.columns)
    result = sch.get_sblock(found.after[-1]) if found.after else sch.cache_write(block, 0, "global")
    shared, inner = _tiles(sch, block, result, tile)
    sch.compute_at(block, inner, preserve_unit_loops=True)
    vectors, vector = sch.split(sch.get_loops(result)[-1], [None, tile.width])
    sch.vectorize(vector)
    sch.unroll(vectors)
    if found.before and found.along:
        sch.compute_at(sch.get_sblock(found.before[-1]), shared)
    _reduce_in_registers(sch, block, found, tile)


def _tiles(sch: Schedule, block: SBlockRV, result: SBlockRV, tile: Tile) -> tuple[LoopRV, LoopRV]:
    """Make the loops over tiles; return the one that threads share, and the innermost."""
    *outer, columns = sch.get_loops(result)
    rows = outer.pop() if outer else sch.add_unit_loop(columns)
    row_tile, row = sch.split(rows, [None, tile.rows])
    column_tile, column = sch.split(columns, [None, tile.columns])
    sch.reorder(*outer, column_tile, row_tile, row, column)
    tiles = [*outer, column_tile, row_tile]
    shared = sch.fuse(*tiles[: tile.shared])
    spread(sch, block, shared, LEAST)
    return shared, [shared, *tiles[tile.shared :]][-1]


def _reduce_in_registers(sch: Schedule, block: SBlockRV, found: Windows, tile: Tile) -> None:
    loops = sch.get_loops(block)[-len(found.extents) - len(found.window) :]
    *outer, column = loops[: len(found.extents)]
    row = outer[-1] if outer else sch.add_unit_loop(column)
    reductions = loops[len(found.extents) :]
    across = [reductions[axis] for axis in found.across]
    others = [loop for axis, loop in enumerate(reductions) if axis not in found.across]
    vectors, vector = sch.split(column, [None, tile.width])
    sch.reorder(*others, *across, row, vectors, vector)
    sums = tile.rows * tile.columns // tile.width
    if sums * found.taps_across <= UNROLLED:
        _unroll(sch, across)
    write_out(sch, block, 3)
    start = sch.decompose_reduction(block, [*others, *across][0])
    write_out(sch, start, 3)
    if found.before and not found.along:
        sparse = _touched(found, tile.rows) > tile.rows * found.taps_across
        level = across if sparse or not others else others
        _read_row(sch, sch.get_sblock(found.before[-1]), level[-1], tile.width)
    if sums * found.taps <= UNROLLED:
        _unroll(sch, others)


def _read_row(sch: Schedule, block: SBlockRV, loop: LoopRV, width: int) -> None:
    """Prepare one row of the input, in registers too."""
    sch.compute_at(block, loop, preserve_unit_loops=True)
    *_, column = sch.get_loops(block)
    sch.split(column, [None, width])
    write_out(sch, block, 3)


def _unroll(sch: Schedule, loops: Sequence[LoopRV]) -> None:
    for loop in loops:
        sch.unroll(loop)


def _pack(sch: Schedule, block: SBlockRV, weights: int, columns: int) -> None:
    """Read weights from a copy in tile order, which the build makes once."""
    *_, last = (axis.var for axis in sch.get(block).iter_vars if axis.iter_type == SPATIAL)
    region = sch.get(block).reads[weights].region
    at = next(i for i, part in enumerate(region) if part.min.same_as(last))
    copy = sch.cache_read(block, weights, "global")

    def tiled(*index: tvm.tirx.Var) -> list[tvm.ir.Expr]:
        others = index[:at] + index[at + 1 :]
        return [index[at] // columns, *others, index[at] % columns]

    sch.transform_layout(block, ("read", weights), tiled)
    sch.annotate(copy, MARK, True)  # noqa: FBT003 - TVM's way


def _promise(tile: Tile, found: Windows, hardware: Hardware) -> float:
    """Estimate the share of peak speed: full vectors, hidden latency, few loads, busy cores."""
    vectors = tile.columns // tile.width
    sums = tile.rows * vectors
    work = sums * found.taps_across
    loads = vectors * _loads(found, tile.rows)
    inner = [found.extents[-1] // tile.columns, _extent(found) // tile.rows]
    jobs = math.prod([*found.extents[:-_PAIR], *inner][: tile.shared])
    busy = jobs / (-(-jobs // hardware.cores) * hardware.cores)
    full = tile.width / hardware.lanes(found.bits)
    hidden = min(1.0, max(sums, AHEAD / found.taps) / CHAINS)
    run = tile.columns * found.bits
    near = run / (run + LINE)
    return full * hidden * near * work / (work + loads) * busy * 0.8**tile.shared


def _extent(found: Windows) -> int:
    return found.extents[-_PAIR] if len(found.extents) >= _PAIR else 1


def _touched(found: Windows, rows: int) -> int:
    """Return how many elements of a row of the input a tile reads."""
    return (rows - 1) * found.stride + found.reach


def _fits(found: Windows, rows: int, columns: int, hardware: Hardware) -> bool:
    """Tell whether a tile fits the registers, and its sums and its row of the input the stack."""
    vectors = columns // math.gcd(columns, hardware.lanes(found.bits))
    row = _touched(found, rows) if found.before or rows > 1 else 0
    weights = found.taps_across if found.weights is not None else 0
    stack = max(rows, row) * columns * found.bits // 8
    return vectors * (rows + row + weights) <= hardware.registers and stack < STACK


def _loads(found: Windows, rows: int) -> int:
    """Return how many vectors each vector of columns of a tile needs for a row of the input."""
    return _touched(found, rows) + (found.taps_across if found.weights is not None else 0)
