"""Template for sums of products: convolutions, dense layers and matrix products.

A tile of outputs, `rows` neighbours along the last but one axis by `columns` along the last, is
summed in registers over the whole reduction; what follows (bias, activation, residual) is done on
the tile as it leaves them. Weights whose layout is free are packed so that a tile reads them in
order.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import tvm
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import SBlockRV

from autopipe.schedules.blocks import SPATIAL, bits, is_copy, is_product, is_spatial
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.spread import ELEMENTS, PRODUCTS, spread

NAME: Final = "contraction"
VERSION: Final = 1

CHAINS = 10
"""Independent sums that hide the latency of a fused multiply-add."""

MAX_VECTORS = 8
"""Vectors in a row of a tile."""

_PAIR = 2
"""A tile has two axes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs."""

    rows: int
    """Outputs along the last but one axis; divides it."""
    columns: int
    """Outputs along the last axis; divides it."""
    width: int
    """Elements in a vector, a power of two; divides `columns`. LLVM makes scalars of others."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A function that the template serves, as far as the knobs depend on it."""

    name: str
    """Name of the block that sums."""
    before: tuple[str, ...]
    """Blocks that prepare its operands, such as padding."""
    after: tuple[str, ...]
    """Elementwise blocks on its result, in order."""
    extents: tuple[int, ...]
    """Extents of its spatial axes."""
    bits: int
    """Width of an element of the sum."""
    granule: int
    """The last axis is made of groups of this many that share an operand, as in grouped
    convolutions."""
    packed: int | None
    """Which operand of the block has a free layout."""


def match(sch: Schedule) -> Contraction | None:
    """Return what the template needs to know of a function, or None if it is for another one."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    sums = [i for i, block in enumerate(blocks) if not is_spatial(block)]
    if len(sums) != 1:
        return None
    block, after = blocks[sums[0]], blocks[sums[0] + 1 :]
    spatial = [axis for axis in block.iter_vars if axis.iter_type == SPATIAL]
    extents = _extents(block)
    alike = all(_extents(other) == extents for other in after)
    if len(spatial) < _PAIR or not alike or not is_product(block):
        return None
    last = spatial[-1].var
    along = [i for i, read in enumerate(block.reads) if read.region[-1].min.same_as(last)]
    if not along:
        return None
    return Contraction(
        name=block.name_hint,
        before=tuple(other.name_hint for other in blocks[: sums[0]]),
        after=tuple(other.name_hint for other in after),
        extents=extents,
        bits=bits(block),
        granule=_granule(block, last, extents[-1]),
        packed=_free_operand(sch, block, along),
    )


def settings(found: Contraction, hardware: Hardware) -> Iterator[Tile]:
    """Yield every tile that fits the registers."""
    lanes = hardware.lanes(found.bits)
    for columns in _divisors(found.granule, MAX_VECTORS * lanes):
        width = math.gcd(columns, lanes)
        vectors = columns // width
        free = hardware.registers - vectors - 1  # for a row of weights and one broadcast value
        if vectors > MAX_VECTORS or free < vectors:
            continue
        for rows in _divisors(found.extents[-2], free // vectors):
            yield Tile(rows, columns, width)


def fill(found: Contraction, hardware: Hardware) -> Tile:
    """Return the knobs for a processor, without measuring: the tile of the least estimated time."""
    return max(settings(found, hardware), key=lambda tile: _promise(tile, found, hardware))


def apply(sch: Schedule, found: Contraction, tile: Tile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    for name in found.before:
        _prepare(sch, sch.get_sblock(name), tile.width)
    for name in found.after[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    block = sch.get_sblock(found.name)
    if found.packed is not None:
        _pack(sch, block, found.packed, tile.columns)
    result = sch.get_sblock(found.after[-1]) if found.after else sch.cache_write(block, 0, "global")
    *outer, rows, columns = sch.get_loops(result)
    row_tile, row = sch.split(rows, [None, tile.rows])
    column_tile, column = sch.split(columns, [None, tile.columns])
    sch.reorder(*outer[:1], column_tile, *outer[1:], row_tile, row, column)
    tile_loop = sch.fuse(*outer[:1], column_tile, *outer[1:], row_tile)
    spread(sch, block, tile_loop, PRODUCTS)
    sch.vectorize(sch.split(column, [None, tile.width])[1])
    sch.compute_at(block, tile_loop, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    _sum_in_registers(sch, block, len(found.extents), tile.width)


def _sum_in_registers(sch: Schedule, block: SBlockRV, spatial: int, width: int) -> None:
    _, *loops = sch.get_loops(block)
    inner, reduction = loops[:spatial], loops[spatial:]
    vectors, vector = sch.split(inner[-1], [None, width])
    sch.reorder(*inner[:-2], *reduction, inner[-2], vectors, vector)
    _unroll_and_vectorize(sch, block)
    _unroll_and_vectorize(sch, sch.decompose_reduction(block, reduction[0]))


def _unroll_and_vectorize(sch: Schedule, block: SBlockRV) -> None:
    *_, row, vectors, vector = sch.get_loops(block)
    sch.vectorize(vector)
    sch.unroll(vectors)
    sch.unroll(row)


def _prepare(sch: Schedule, block: SBlockRV, width: int) -> None:
    """Inline a copy; do any other preparation in parallel, a vector at a time."""
    if is_copy(sch.get(block)):
        sch.compute_inline(block)
        return
    *outer, last = sch.get_loops(block)
    extent = int(sch.get(last).extent)
    rest, vector = sch.split(last, [None, math.gcd(extent, width) if width > 1 else 1])
    spread(sch, block, sch.fuse(*outer, rest), ELEMENTS)
    sch.vectorize(vector)


def _pack(sch: Schedule, block: SBlockRV, operand: int, columns: int) -> None:
    """Read a weight from a copy in tile order, which the build makes once."""
    copy = sch.cache_read(block, operand, "global")

    def tiled(*index: tvm.tirx.Var) -> list[tvm.ir.Expr]:
        return [index[-1] // columns, *index[:-1], index[-1] % columns]

    sch.transform_layout(block, ("read", operand), tiled)
    sch.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)  # noqa: FBT003 - TVM's way


def _promise(tile: Tile, found: Contraction, hardware: Hardware) -> float:
    """Estimate the share of peak speed: full vectors, hidden latency, few loads, busy cores."""
    lanes = hardware.lanes(found.bits)
    vectors = tile.columns // tile.width
    sums = tile.rows * vectors
    full = tile.width / lanes
    loads = sums / (tile.rows + vectors)
    count = 1
    for extent in found.extents:
        count *= extent
    jobs = count // (tile.rows * tile.columns)
    busy = jobs / (-(-jobs // hardware.cores) * hardware.cores)
    return full * min(1.0, sums / CHAINS) * min(1.0, loads) * busy * (1 + 0.02 * loads)


def _divisors(extent: int, most: int) -> list[int]:
    return [d for d in range(1, min(extent, max(1, most)) + 1) if extent % d == 0]


def _extents(block: SBlock) -> tuple[int, ...]:
    spatial = (axis.dom.extent for axis in block.iter_vars if axis.iter_type == SPATIAL)
    return tuple(int(e) if isinstance(e, tvm.tirx.IntImm) else -1 for e in spatial)


def _granule(block: SBlock, last: tvm.tirx.Var, extent: int) -> int:
    """Return the divisor by which an operand's index divides the last axis, or its extent."""
    indices = (r.min for read in block.reads for r in read.region if not r.min.same_as(last))
    divisors = [d for index in indices for d in _divided_by(index, last)]
    return min((d for d in divisors if extent % d == 0), default=extent)


def _divided_by(index: tvm.ir.Expr, last: tvm.tirx.Var) -> Iterator[int]:
    if isinstance(index, tvm.tirx.FloorDiv) and index.a.same_as(last):
        yield int(index.b)
    for part in (getattr(index, "a", None), getattr(index, "b", None)):
        if part is not None:
            yield from _divided_by(part, last)


def _free_operand(sch: Schedule, block: SBlock, along: Sequence[int]) -> int | None:
    """Return the operand that lies along the last axis and is a weight, if there is one."""
    function = sch.mod["main"]
    free = (function.attrs or {}).get("layout_free_buffers", [])
    weights = [function.params[int(position)] for position in free]
    owned = [i for i in along if any(block.reads[i].source.same_as(w) for w in weights)]
    return owned[0] if owned and len(block.reads[owned[0]].region) > 1 else None
