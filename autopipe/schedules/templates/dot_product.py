"""Template for sums of products of bytes: quantized convolutions and matrix products.

As in `contraction`, a tile of outputs is summed in registers, and what follows is done on the tile
as it leaves them. The sums are made by dot-product instructions, each for a vector of neighbours
along the last axis and a few steps of the innermost reduction; the weights are packed in the order
in which these instructions read them.
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
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import ELEMENTS, PRODUCTS, spread, spread_vectors
from autopipe.schedules.write_out import write_out

NAME: Final = "dot_product"
VERSION: Final = 1

CHAINS = 10
"""Independent sums that hide the latency of an instruction."""

MAX_VECTORS = 8
"""Vectors in a row of a tile."""

_BYTES: Final = ("int8", "uint8")
_OPERANDS: Final = 2
_PLANE: Final = 2
"""A tile has two axes."""
_LINE: Final = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs."""

    rows: int
    """Outputs along the last but one axis; divides it."""
    vectors: int
    """Vectors of outputs along the last axis."""
    lanes: int
    """Outputs in a vector."""
    instruction: str
    """Mnemonic of the dot-product instruction."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A function that the template serves, as far as the knobs depend on it."""

    name: str
    """Name of the block that sums."""
    before: tuple[str, ...]
    """Blocks that prepare its operands, such as padding."""
    after: tuple[str, ...]
    """Elementwise blocks on its result, in order."""
    extents: tuple[int, ...]
    """Extents of its spatial axes."""
    depth: int
    """Extent of its innermost reduction."""
    operands: Operands
    """Dtypes of its operands: the row, then the weights."""
    weights: int
    """Which operand of the block the weights are."""
    axes: tuple[int, int]
    """Which of their axes lie along the last spatial axis, and along the innermost reduction."""
    free: bool
    """Whether they are a parameter whose layout is free."""


def match(sch: Schedule) -> Quantized | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    sums = [i for i, block in enumerate(blocks) if not is_spatial(block)]
    if len(sums) != 1 or not _is_sum_of_bytes(blocks[sums[0]]):
        return None
    block, after = blocks[sums[0]], blocks[sums[0] + 1 :]
    spatial, reduced = _axes(block)
    weights = _weights(block, spatial[-1].var, reduced[-1].var)
    extents = extents_of(block)
    alike = all(extents_of(other) == extents for other in after[-1:])
    if weights is None or not alike or len(spatial) < _PLANE:
        return None
    operand, axes = weights
    return Quantized(
        name=block.name_hint,
        before=tuple(other.name_hint for other in blocks[: sums[0]]),
        after=tuple(other.name_hint for other in after),
        extents=extents,
        depth=int(reduced[-1].dom.extent),
        operands=(_dtypes(block)[1 - operand], _dtypes(block)[operand]),
        weights=operand,
        axes=axes,
        free=any(block.reads[operand].source.same_as(each) for each in free(sch.mod["main"])),
    )


def settings(found: Quantized, hardware: Hardware) -> Iterator[Tile]:
    """Yield every tile that fits the registers, for every instruction of the processor."""
    columns = found.extents[-1]
    for dot in dot_products(found.operands):
        divides = found.depth % dot.group == 0 and columns % dot.lanes == 0
        if not divides or not dot.runs_on(hardware.features):
            continue
        for vectors in divisors(columns // dot.lanes, MAX_VECTORS):
            free = hardware.registers - vectors - 1  # for a row of weights and one broadcast value
            for rows in divisors(found.extents[-2], free // vectors):
                yield Tile(rows, vectors, dot.lanes, dot.name)


def fill(found: Quantized, hardware: Hardware) -> Tile:
    """Return the knobs for a processor, without measuring: the tile of the least estimated time.

    Raises ScheduleError if the processor has no instruction for these extents.
    """
    tiles = list(settings(found, hardware))
    if not tiles:
        raise ScheduleError(f"no dot-product instruction for extents {found.extents}")
    return max(tiles, key=lambda tile: _promise(tile, found, hardware))


def apply(sch: Schedule, found: Quantized, tile: Tile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    dot = _instruction(found.operands, tile)
    for name in found.before:
        _prepare(sch, sch.get_sblock(name))
    for name in found.after[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    block = sch.get_sblock(found.name)
    _pack(sch, block, found, (tile.vectors * dot.lanes, dot.group))
    result = sch.get_sblock(found.after[-1]) if found.after else sch.cache_write(block, 0, "global")
    *outer, rows, columns = sch.get_loops(result)
    row_tile, row = sch.split(rows, [None, tile.rows])
    column_tile, column = sch.split(columns, [None, tile.vectors * dot.lanes])
    sch.reorder(*outer[:1], column_tile, *outer[1:], row_tile, row, column)
    tile_loop = sch.fuse(*outer[:1], column_tile, *outer[1:], row_tile)
    spread(sch, block, tile_loop, PRODUCTS)
    sch.vectorize(sch.split(column, [None, dot.lanes])[1])
    sch.compute_at(block, tile_loop, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    _sum_in_registers(sch, block, len(found.extents), dot)


def _sum_in_registers(sch: Schedule, block: SBlockRV, spatial: int, dot: DotProduct) -> None:
    _, *loops = sch.get_loops(block)
    inner, reduction = loops[:spatial], loops[spatial:]
    vectors, lane = sch.split(inner[-1], [None, dot.lanes])
    steps, step = sch.split(reduction[-1], [None, dot.group])
    row, every = inner[-2], [*reduction[:-1], steps]
    sch.reorder(*inner[:-2], *every, row, vectors, lane, step)
    sch.unroll(vectors)
    sch.unroll(row)
    zeros = sch.decompose_reduction(block, every[0])
    write_out(sch, zeros, 3)
    sch.tensorize(sch.get_loops(block)[-2], dot.register())


def _prepare(sch: Schedule, block: SBlockRV) -> None:
    """Inline a copy; prepare anything else in parallel, a vector at a time, if it is one."""
    if is_copy(sch.get(block)):
        sch.compute_inline(block)
        return
    if not sch.get_loops(block):
        return
    spread_vectors(sch, block, _LINE)


def _pack(sch: Schedule, block: SBlockRV, found: Quantized, tile: tuple[int, int]) -> None:
    """Read the weights from a copy in tile order; the build makes it once, if it can."""
    columns, group = tile

    def tiled(*index: tvm.tirx.Var) -> list[tvm.ir.Expr]:
        column, depth = (index[axis] for axis in found.axes)
        rest = [each for axis, each in enumerate(index) if axis not in found.axes]
        return [column // columns, *rest, depth // group, column % columns, depth % group]

    copy = sch.cache_read(block, found.weights, "global")
    sch.transform_layout(block, ("read", found.weights), tiled)
    if found.free:
        sch.annotate(copy, MARK, True)  # noqa: FBT003 - TVM's way
    else:
        spread(sch, copy, sch.get_loops(copy)[0], ELEMENTS)


def _instruction(operands: Operands, tile: Tile) -> DotProduct:
    every = dot_products(operands)
    return next(d for d in every if (d.name, d.lanes) == (tile.instruction, tile.lanes))


def _promise(tile: Tile, found: Quantized, hardware: Hardware) -> float:
    """Estimate products a cycle: those of an instruction, hidden latency, few loads, busy cores."""
    dot = _instruction(found.operands, tile)
    sums = tile.rows * tile.vectors
    loads = sums / (tile.rows + tile.vectors)
    jobs = math.prod(found.extents) // (sums * tile.lanes)
    busy = jobs / (-(-jobs // hardware.cores) * hardware.cores)
    hidden = min(1.0, sums / CHAINS) * min(1.0, loads)
    return dot.lanes * dot.group / dot.cost * hidden * busy * (1 + 0.02 * loads)


def _is_sum_of_bytes(block: SBlock) -> bool:
    bytes_ = len(block.reads) == _OPERANDS and all(each in _BYTES for each in _dtypes(block))
    return (
        is_static(block)
        and bytes_
        and is_product(block)
        and str(block.writes[0].source.dtype) == "int32"
    )


def _weights(
    block: SBlock, column: tvm.tirx.Var, depth: tvm.tirx.Var
) -> tuple[int, tuple[int, int]] | None:
    """Return which operand is indexed by these two, and where, if the other lies along the last."""
    regions = [read.region for read in block.reads]
    for operand, region in enumerate(regions):
        axes = _place(region, column) + _place(region, depth)
        if len(axes) == _PLANE and regions[1 - operand][-1].min.same_as(depth):
            return operand, (axes[0], axes[1])
    return None


def _place(region: Sequence[tvm.ir.Range], variable: tvm.tirx.Var) -> list[int]:
    return [axis for axis, each in enumerate(region) if each.min.same_as(variable)]


def _axes(block: SBlock) -> tuple[list[tvm.tirx.IterVar], list[tvm.tirx.IterVar]]:
    spatial = [axis for axis in block.iter_vars if axis.iter_type == SPATIAL]
    return spatial, [axis for axis in block.iter_vars if axis.iter_type != SPATIAL]


def _dtypes(block: SBlock) -> list[str]:
    return [str(read.source.dtype) for read in block.reads]
