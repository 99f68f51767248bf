"""Template for sums of products: convolutions, dense layers and matrix products.

A tile of outputs, `rows` neighbours along one axis by `columns` along another, is summed in
registers over the whole reduction. What follows (bias, activation, residual) is computed on the
tile before it leaves the registers. Weights whose layout is free are packed, so that a tile reads
them in order. `autopipe/schedules/tiling/` does the work; its docstring shows an example.
"""

from collections.abc import Sequence
from typing import Final

import tvm
from tvm.s_tir import SBlock, Schedule, ScheduleError

from autopipe.schedules.analysis.product import Product
from autopipe.schedules.primitives import PRODUCTS, spread_vectors
from autopipe.schedules.tiling import loops
from autopipe.schedules.tiling.form import Contraction, recognize
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.packing import Copy
from autopipe.schedules.tiling.padding import Padding
from autopipe.schedules.tiling.promise import estimate, fill
from autopipe.schedules.tiling.tile import Tile, settings

__all__ = ["NAME", "VERSION", "apply", "estimate", "fill", "match", "settings"]

NAME: Final = "contraction"
VERSION: Final = 2

match = recognize


def apply(sch: Schedule, contraction: Contraction, tile: Tile) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    for name in (*contraction.inlined, *contraction.after[:-1]):
        sch.compute_inline(sch.get_sblock(name))
    operands = _prepared(sch, contraction, tile.width)
    product = Product.of(sch.get(sch.get_sblock(contraction.name)))
    if product is None:
        raise ScheduleError(f"block {contraction.name} no longer sums products")
    last = sch.get(sch.get_sblock(contraction.after[-1])) if contraction.after else None
    nest = Nest(contraction, tile, product, last)
    copy = Copy.of(nest) if tile.packed else None
    tiles = loops.write(nest, copy, parallel=contraction.products >= PRODUCTS)
    _replace(sch, nest, copy, [*operands, *([copy.write()] if copy else []), tiles])
    if copy is not None and not contraction.lines.free:
        spread_vectors(sch, sch.get_sblock(copy.name), tile.width)


def _prepared(sch: Schedule, contraction: Contraction, width: int) -> list[tvm.tirx.Stmt]:
    """Return a loop nest for each operand that is computed first, such as a padded image."""
    operands = {
        sch.get(block).name_hint for block in sch.get_producers(sch.get_sblock(contraction.name))
    }
    for name in contraction.before:
        if name not in operands:
            sch.compute_inline(sch.get_sblock(name))
    nests = []
    for name in contraction.before:
        if name in operands:
            padding = Padding.of(sch.get(sch.get_sblock(name)))
            if padding is None:
                spread_vectors(sch, sch.get_sblock(name), width)
            nests.append(padding.write(width) if padding else _outermost(sch, name))
    return nests


def _outermost(sch: Schedule, name: str) -> tvm.tirx.Stmt:
    """Return the outermost loop around a block."""
    return sch.get(sch.get_loops(sch.get_sblock(name))[0])


def _replace(sch: Schedule, nest: Nest, copy: Copy | None, nests: Sequence[tvm.tirx.Stmt]) -> None:
    """Make `nests` the body of the function; the sum no longer needs a buffer of its own.

    Raises ScheduleError if the sum is an output of the function, too.
    """
    here = sch.get_sblock("root")
    root = sch.get(here)
    total = nest.product.block.body.buffer
    buffers = [buffer for buffer in root.alloc_buffers if not buffer.same_as(total)]
    if nest.last is not None and len(buffers) == len(root.alloc_buffers):
        raise ScheduleError("the sum is an output too")
    new = SBlock(
        [],
        root.reads,
        root.writes,
        root.name_hint,
        tvm.tirx.stmt_seq(*nests),
        alloc_buffers=[*buffers, *([copy.buffer] if copy else [])],
        annotations=root.annotations,
    )
    sch.state.replace(sch.get_sref(here), new, {root: new})
