"""Template for sums of products: convolutions, dense layers and matrix products.

A tile of outputs, `rows` neighbours along one axis by `columns` along another, is summed in
registers over the whole reduction; what follows (bias, activation, residual) is done on the tile as
it leaves them. Weights whose layout is free are packed so that a tile reads them in order.
"""

import math
from typing import Final

import tvm
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV

from autopipe.schedules.spread import ELEMENTS, PRODUCTS, spread
from autopipe.schedules.tiling import loops
from autopipe.schedules.tiling.form import Contraction, recognize
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.packing import Copy
from autopipe.schedules.tiling.product import Product
from autopipe.schedules.tiling.promise import estimate, fill
from autopipe.schedules.tiling.tile import Tile, settings

__all__ = ["NAME", "VERSION", "apply", "estimate", "fill", "match", "settings"]

NAME: Final = "contraction"
VERSION: Final = 2

match = recognize


def apply(sch: Schedule, found: Contraction, tile: Tile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    for name in (*found.inlined, *found.after[:-1]):
        sch.compute_inline(sch.get_sblock(name))
    for name in found.before:
        _prepare(sch, sch.get_sblock(name), tile.width)
    product = Product.of(sch.get(sch.get_sblock(found.name)))
    if product is None:
        raise ScheduleError(f"block {found.name} no longer sums products")
    last = sch.get(sch.get_sblock(found.after[-1])) if found.after else None
    nest = Nest(found, tile, product, last)
    copy = Copy.of(nest) if tile.packed else None
    work = math.prod(found.extents) * math.prod(found.terms)
    tiles = loops.write(nest, copy, parallel=work >= PRODUCTS)
    _replace(sch, nest, copy, tiles)
    if copy is not None and not found.lines.free:
        _spread_copy(sch, copy, tile.width)


def _replace(sch: Schedule, nest: Nest, copy: Copy | None, tiles: tvm.tirx.Stmt) -> None:
    """Put the loops over the tiles where the sum and what follows it were."""
    here = sch.get_sblock("root")
    root = sch.get(here)
    nests = list(root.body.seq) if isinstance(root.body, tvm.tirx.SeqStmt) else [root.body]
    kept = nests[: -2 if nest.last else -1]
    written = [*kept, *([copy.write()] if copy else []), tiles]
    total = nest.product.block.body.buffer
    buffers = [buffer for buffer in root.alloc_buffers if not buffer.same_as(total)]
    if nest.last is not None and len(buffers) == len(root.alloc_buffers):
        raise ScheduleError("the sum is an output too")
    new = SBlock(
        [],
        root.reads,
        root.writes,
        root.name_hint,
        tvm.tirx.SeqStmt(written) if len(written) > 1 else written[0],
        alloc_buffers=[*buffers, *([copy.buffer] if copy else [])],
        annotations=root.annotations,
    )
    sch.state.replace(sch.get_sref(here), new, {root: new})


def _spread_copy(sch: Schedule, copy: Copy, width: int) -> None:
    """Make a copy in parallel, a vector at a time."""
    block = sch.get_sblock(copy.name)
    *outer, columns = sch.get_loops(block)
    vectors, vector = sch.split(columns, [None, width])
    spread(sch, block, sch.fuse(*outer, vectors), ELEMENTS)
    sch.vectorize(vector)


def _prepare(sch: Schedule, block: SBlockRV, width: int) -> None:
    """Prepare an operand in parallel, a vector at a time."""
    *outer, last = sch.get_loops(block)
    extent = int(sch.get(last).extent)
    rest, vector = sch.split(last, [None, math.gcd(extent, width) if width > 1 else 1])
    spread(sch, block, sch.fuse(*outer, rest), ELEMENTS)
    sch.vectorize(vector)
