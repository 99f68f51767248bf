"""Template for sums of short products: quantized convolutions and matrix products, and bfloat16.

As in `contraction`, a tile of outputs is summed in registers, and what follows is computed on the
tile before it leaves them. A dot-product instruction computes a vector of sums along the last axis
and `group` steps of the innermost reduction at once; the weights are packed in its order.

Example: `vpdpbusd` with 512 bits has 16 lanes and groups of 4. A product of [6, 64] (uint8) and
[64, 32] (int8) in tiles of 3 rows and 2 vectors:

    packed = w as [1, 16, 32, 4]                     # packed[0, k // 4, j, k % 4] = w[k, j]
    for tile in range(2):                            # rows 0..2, then rows 3..5
        sums = zeros(3, 32)                          # 6 registers of 16 int32
        for step in range(16):                       # 4 of the 64 terms at a time
            for row, vector in unrolled(3, 2):
                sums[row, vector] = vpdpbusd(sums[row, vector], x[row, 4 * step : 4 * step + 4],
                                             packed[0, step, 16 * vector : 16 * vector + 16, 0:4])
        y[3 * tile : 3 * tile + 3, :] = sums

`vdpbf16ps` has groups of 2, operands of bfloat16 and sums of float32; the rest is the same.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import tvm
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV

from autopipe.compiler.graph.weights import MARK, free
from autopipe.schedules.analysis.blocks import (
    SPATIAL,
    extents_of,
    is_copy,
    is_product,
    is_spatial,
    is_static,
)
from autopipe.schedules.analysis.dot_products import DotProduct, Operands, dot_products
from autopipe.schedules.divisors import divisors
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import ELEMENTS, PRODUCTS, spread, spread_vectors
from autopipe.schedules.write_out import write_out

NAME: Final = "dot_product"
VERSION: Final = 3

CHAINS = 10
"""Independent sums that hide the latency of an instruction: 5 cycles, two start in each."""

_ADDITIONS: Final = 2
"""The same where an addition of its own follows, of one cycle: nothing waits for the products."""
_WIDENED: Final = 3
"""What a vector of weights costs that is widened when it is loaded, in loads."""

MAX_VECTORS = 8
"""Most vectors in a row of a tile."""

_SUMS: Final = {"int8": "int32", "uint8": "int32", "bfloat16": "float32"}
"""Dtypes of operands, each with that of the sums."""
_OPERANDS: Final = 2
_PLANE: Final = 2
"""A tile has two axes."""
_LINE: Final = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class DotProductTile:
    """The knobs of a tile; records of schedules hold their names and values."""

    rows: int
    """Outputs along the last but one axis; divides its extent."""
    vectors: int
    """Vectors of outputs along the last axis."""
    lanes: int
    """Outputs in a vector."""
    instruction: str
    """Mnemonic of the dot-product instruction."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """What the knobs depend on in a function that sums short products."""

    name: str
    """Name of the block that sums."""
    before: tuple[str, ...]
    """Blocks that prepare its operands, such as padding."""
    after: tuple[str, ...]
    """Elementwise blocks on its result, in order, those that prepare what they read first."""
    extents: tuple[int, ...]
    """Extents of its spatial axes."""
    depth: int
    """Extent of its innermost reduction."""
    operands: Operands
    """Dtypes of the input and of the weights."""
    weights: int
    """Position of the weights among the operands of the block: 0 or 1."""
    axes: tuple[int, int]
    """The axes of the weights along the last spatial axis and along the innermost reduction."""
    free: bool
    """Whether the weights are a parameter whose layout is free."""


def match(sch: Schedule) -> Quantized | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    sums = [i for i, block in enumerate(blocks) if not is_spatial(block)]
    if len(sums) != 1 or not _is_short_sum(blocks[sums[0]]):
        return None
    block, after = blocks[sums[0]], blocks[sums[0] + 1 :]
    before, beside = _parted(blocks[: sums[0]], block)
    spatial, reduced = axes_of(block)
    weights = _weights(block, spatial[-1].var, reduced[-1].var)
    extents = extents_of(block)
    alike = all(extents_of(other) == extents for other in after[-1:])
    if weights is None or not alike or len(spatial) < _PLANE:
        return None
    operand, axes = weights
    return Quantized(
        name=block.name_hint,
        before=tuple(other.name_hint for other in before),
        after=tuple(other.name_hint for other in (*beside, *after)),
        extents=extents,
        depth=int(reduced[-1].dom.extent),
        operands=(_dtypes(block)[1 - operand], _dtypes(block)[operand]),
        weights=operand,
        axes=axes,
        free=any(block.reads[operand].source.same_as(param) for param in free(sch.mod["main"])),
    )


def settings(quantized: Quantized, hardware: HardwareParams) -> Iterator[DotProductTile]:
    """Yield every tile that fits the registers, for every instruction of the processor."""
    columns = quantized.extents[-1]
    for dot in dot_products(quantized.operands):
        divides = quantized.depth % dot.group == 0 and columns % dot.lanes == 0
        if not divides or not dot.runs_on(hardware.features):
            continue
        for vectors in divisors(columns // dot.lanes, MAX_VECTORS):
            free = hardware.registers - vectors - 1  # for a row of weights and one broadcast value
            for rows in divisors(quantized.extents[-2], free // vectors):
                yield DotProductTile(rows, vectors, dot.lanes, dot.name)


def fill(quantized: Quantized, hardware: HardwareParams) -> DotProductTile:
    """Return the knobs for a processor, without measuring: the tile of the least estimated time.

    Raises ScheduleError if the processor has no instruction for these extents.
    """
    tiles = list(settings(quantized, hardware))
    if not tiles:
        raise ScheduleError(f"no dot-product instruction for extents {quantized.extents}")
    return max(tiles, key=lambda tile: _promise(tile, quantized, hardware))


def apply(sch: Schedule, quantized: Quantized, tile: DotProductTile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    dot = _instruction(quantized.operands, tile)
    for name in quantized.before:
        prepare(sch, sch.get_sblock(name))
    for name in quantized.after[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    block = sch.get_sblock(quantized.name)
    if dot.row != quantized.operands[0]:
        _widen(sch, block, 1 - quantized.weights, dot.row)
    pack(sch, block, quantized, (tile.vectors * dot.lanes, dot.group))
    result = (
        sch.get_sblock(quantized.after[-1])
        if quantized.after
        else sch.cache_write(block, 0, "global")
    )
    *outer, rows, columns = sch.get_loops(result)
    row_tile, row = sch.split(rows, [None, tile.rows])
    column_tile, column = sch.split(columns, [None, tile.vectors * dot.lanes])
    sch.reorder(*outer[:1], column_tile, *outer[1:], row_tile, row, column)
    tile_loop = sch.fuse(*outer[:1], column_tile, *outer[1:], row_tile)
    spread(sch, block, tile_loop, PRODUCTS)
    strip, lane = sch.split(column, [None, dot.lanes])
    sch.vectorize(lane)
    for loop in (strip, row):  # or the sums of a tile would go through memory
        sch.unroll(loop)
    sch.compute_at(block, tile_loop, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    _sum_in_registers(sch, block, len(quantized.extents), dot)


def _sum_in_registers(sch: Schedule, block: SBlockRV, spatial: int, dot: DotProduct) -> None:
    """Unroll the sums of a tile and compute them by a dot-product instruction."""
    _, *loops = sch.get_loops(block)
    inner, reduction = loops[:spatial], loops[spatial:]
    vectors, lane = sch.split(inner[-1], [None, dot.lanes])
    steps, step = sch.split(reduction[-1], [None, dot.group])
    row, terms = inner[-2], [*reduction[:-1], steps]
    sch.reorder(*inner[:-2], *terms, row, vectors, lane, step)
    sch.unroll(vectors)
    sch.unroll(row)
    zeros = sch.decompose_reduction(block, terms[0])
    write_out(sch, zeros, 3)
    sch.tensorize(sch.get_loops(block)[-2], dot.register())


def prepare(sch: Schedule, block: SBlockRV) -> None:
    """Inline a block that copies; run any other block that has loops in parallel and in vectors."""
    if is_copy(sch.get(block)):
        sch.compute_inline(block)
        return
    if not sch.get_loops(block):
        return
    spread_vectors(sch, block, _LINE)


def _widen(sch: Schedule, block: SBlockRV, operand: int, dtype: str) -> None:
    """Copy an operand to numbers of another dtype, all of it before the sums."""
    copy = sch.cache_read(block, operand, "global")
    sch.unsafe_set_dtype(copy, 0, dtype)
    spread_vectors(sch, copy, _LINE)


def pack(sch: Schedule, block: SBlockRV, quantized: Quantized, tile: tuple[int, int]) -> None:
    """Pack the weights in the order of the tiles: [strip, other axes, group, column, in group].

    The build packs them once if their layout is free; otherwise every call does.
    """
    columns, group = tile

    def tiled(*index: tvm.tirx.Var) -> list[tvm.ir.Expr]:
        column, depth = (index[axis] for axis in quantized.axes)
        rest = [part for axis, part in enumerate(index) if axis not in quantized.axes]
        return [column // columns, *rest, depth // group, column % columns, depth % group]

    copy = sch.cache_read(block, quantized.weights, "global")
    sch.transform_layout(block, ("read", quantized.weights), tiled)
    if quantized.free:
        sch.annotate(copy, MARK, True)  # noqa: FBT003 - TVM's way
    else:
        spread(sch, copy, sch.get_loops(copy)[0], ELEMENTS)


def _instruction(operands: Operands, tile: DotProductTile) -> DotProduct:
    """Return the instruction that a tile names."""
    instructions = dot_products(operands)
    return next(d for d in instructions if (d.name, d.lanes) == (tile.instruction, tile.lanes))


def _promise(tile: DotProductTile, quantized: Quantized, hardware: HardwareParams) -> float:
    """Return the estimated products in a cycle, in no exact unit.

    The factors are the products of an instruction, how much of its latency other sums hide, how
    many sums a load serves, and the share of cores that are busy.
    """
    dot = _instruction(quantized.operands, tile)
    sums = tile.rows * tile.vectors
    wide = dot.row != quantized.operands[0]
    loads = sums / (tile.rows + (_WIDENED if wide else 1) * tile.vectors)
    jobs = math.prod(quantized.extents) // (sums * tile.lanes)
    busy = jobs / (-(-jobs // hardware.cores) * hardware.cores)
    hidden = min(1.0, sums / (_ADDITIONS if wide else CHAINS)) * min(1.0, loads)
    return dot.lanes * dot.group / dot.cost * hidden * busy * (1 + 0.02 * loads)


def _parted(blocks: Sequence[SBlock], sums: SBlock) -> tuple[list[SBlock], list[SBlock]]:
    """Part the blocks before the sums: those to run first, and those to compute where they are.

    The latter are of the size of the result, such as what is made of a residual, and no sum reads
    them. They would go through memory.
    """
    first, beside = list[SBlock](), list[SBlock]()
    wanted = [read.source for read in sums.reads]
    for block in reversed(blocks):
        feeds = any(block.writes[0].source.same_as(buffer) for buffer in wanted)
        if feeds or extents_of(block) != extents_of(sums):
            first.insert(0, block)
            wanted += [read.source for read in block.reads]
        else:
            beside.insert(0, block)
    return first, beside


def _is_short_sum(block: SBlock) -> bool:
    """Tell whether a block sums products of two bytes as int32, or of two bfloat16 as float32."""
    if len(block.reads) != _OPERANDS or not is_static(block) or not is_product(block):
        return False
    sums = {_SUMS.get(dtype) for dtype in _dtypes(block)}
    return sums == {str(block.writes[0].source.dtype)}


def _weights(
    block: SBlock, column: tvm.tirx.Var, depth: tvm.tirx.Var
) -> tuple[int, tuple[int, int]] | None:
    """Return the position of the weights and their axes along `column` and `depth`, or None.

    The weights are the operand that both variables index; the last axis of the other operand has
    to be `depth`.
    """
    regions = [read.region for read in block.reads]
    for operand, region in enumerate(regions):
        axes = _place(region, column) + _place(region, depth)
        if len(axes) == _PLANE and regions[1 - operand][-1].min.same_as(depth):
            return operand, (axes[0], axes[1])
    return None


def _place(region: Sequence[tvm.ir.Range], variable: tvm.tirx.Var) -> list[int]:
    """Return the axes of a region whose index is a variable itself."""
    return [axis for axis, part in enumerate(region) if part.min.same_as(variable)]


def axes_of(block: SBlock) -> tuple[list[tvm.tirx.IterVar], list[tvm.tirx.IterVar]]:
    """Return the spatial axes of a block, and its reduction axes."""
    spatial = [axis for axis in block.iter_vars if axis.iter_type == SPATIAL]
    return spatial, [axis for axis in block.iter_vars if axis.iter_type != SPATIAL]


def _dtypes(block: SBlock) -> list[str]:
    return [str(read.source.dtype) for read in block.reads]
