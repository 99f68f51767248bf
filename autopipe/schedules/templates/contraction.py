"""Template for sums of products: convolutions, dense layers and matrix products.

A tile of outputs, `rows` neighbours along one axis by `columns` along another, is summed in
registers over the whole reduction. What follows (bias, activation, residual) is computed on the
tile before it leaves the registers. Weights whose layout is free are packed, so that a tile reads
them in order. `autopipe/schedules/tiling/` does the work; its docstring shows an example.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, Schedule, ScheduleError

from autopipe.compiler.dynamic_sizes.kernel_sizes import OpenSizes, is_at_least, known_of
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import enough
from autopipe.schedules.analysis.dot_products import DotProduct
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.rows import count
from autopipe.schedules.analysis.simple_indices import simplified
from autopipe.schedules.guarded import guard, guarded
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import ELEMENTS, PRODUCTS, put, spread_vectors
from autopipe.schedules.templates.template import Template
from autopipe.schedules.tiling import loops, promise, tile
from autopipe.schedules.tiling.form import Contraction, recognize
from autopipe.schedules.tiling.lines import longer
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.packing import Copy
from autopipe.schedules.tiling.padding import Padding
from autopipe.schedules.tiling.promise import reads_many_weights
from autopipe.schedules.tiling.tile import Tile

_FEW_ROWS: Final = 8
"""Rows for which an operand is not copied into the order of tiles at run time."""

_LONG: Final = 32
"""Steps of a sum that fill vectors well; of a shorter one only a single row is few."""

_NARROWER: Final = 4
"""Vectors for few columns are so many times narrower."""

_FEWER: Final = 3
"""A tile for few rows has so many times fewer of them."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How what a function reduces is read and added."""

    read: Callable[[SBlock], Product | None]
    """Tells what a block reduces."""
    least: int
    """Steps that pay for threads."""
    dot: DotProduct | None = None
    """The instruction that adds several products at once, if there is one."""


class ContractionTemplate(Template[Contraction, Tile]):
    """Sums of products: convolutions, dense layers and matrix products."""

    name = "contraction"
    version = schedule_version("contraction")
    serves_dynamic = True

    def match(self, sch: Schedule) -> Contraction | None:
        """Return what the knobs depend on, or None if the function is for another template."""
        return recognize(sch)

    def is_asked_last(self, contraction: Contraction) -> bool:
        """Tell whether an operand would be copied for few rows.

        Example: [1, 1000] by the rows of [512, 1000] takes 143 us so, and 21 us in vectors along
        rows.
        """
        lines = contraction.lines
        copied = not lines.free and False not in lines.packed
        few = few_rows(contraction.terms[-1])
        return copied and contraction.products <= few * contraction.column_elements

    def settings(self, contraction: Contraction, hardware: HardwareParams) -> Iterator[Tile]:
        """Yield every setting of the knobs."""
        return tile.settings(contraction, hardware)

    def fill(self, contraction: Contraction, hardware: HardwareParams) -> Tile:
        """Return the knobs for a processor, without measuring."""
        return promise.fill(contraction, hardware)

    def estimate(self, contraction: Contraction, tile: Tile, hardware: HardwareParams) -> float:
        """Return the time of a setting, in cycles."""
        return promise.estimate(contraction, tile, hardware)

    def apply(self, sch: Schedule, contraction: Contraction, tile: Tile) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        cut(sch, contraction, tile, Terms(partial(Product.of, open_sizes=True), PRODUCTS))


CONTRACTION: Final = ContractionTemplate()


def few_rows(steps: int) -> int:
    """Return for how many rows no operand is copied, where the innermost sum has so many steps.

    Example: 8 rows by those of [512, 1000] take 125 us in place of 198 as they lie; by those of
    [100, 24] they take 4.1 us in place of 1.7, as vectors along rows are few.
    """
    return _FEW_ROWS if steps >= _LONG else 1


def cut(sch: Schedule, contraction: Contraction, tile: Tile, terms: Terms) -> None:
    """Cut what a function reduces into tiles. Raises ScheduleError where TVM refuses."""
    for name in (*contraction.inlined, *contraction.after[:-1]):
        sch.compute_inline(sch.get_sblock(name))
    operands = prepared(sch, contraction.name, contraction.before, tile.width)
    product = terms.read(sch.get(sch.get_sblock(contraction.name)))
    if product is None:
        raise ScheduleError(f"block {contraction.name} no longer sums products")
    last = simplified(sch.get(sch.get_sblock(contraction.after[-1]))) if contraction.after else None
    if not isinstance(product.steps[-1], int):  # no number of steps divides an open one
        tile = replace(tile, unroll=1)
    known = known_of(sch.mod["main"])
    if known is not None:
        contraction = replace(contraction, lines=longer(contraction.lines, product))
    nest = Nest(contraction, tile, product, last, terms.dot)
    copy = Copy.of(nest) if tile.packed else None
    tiled = _needed([(nest, copy), *_smaller(nest, copy)], known)
    pays = reads_many_weights(contraction) or enough(
        (*product.lengths, *product.steps), terms.least, known
    )
    tiles = loops.write(tiled, pays)
    totals = [store.buffer for store in product.stores]
    nests = [*operands, *([copy.write()] if copy else []), tiles]
    put(sch, nests, totals, last, [copy.buffer] if copy else [])
    if copy is not None and not contraction.lines.free:
        block = sch.get_sblock(copy.name)
        if not copy.across or count(sch.get(block)) >= ELEMENTS:
            spread_vectors(sch, block, tile.width)  # LLVM loads few that are apart faster
        guard(sch, copy.name)


def _smaller(nest: Nest, copy: Copy | None) -> Iterator[loops.Tiled]:
    """Yield what is done where a size is open, and too small for a whole tile.

    Example: tiles of 12 x 32 with vectors of 16 are followed by 4 x 32 and 1 x 32. Where the
    columns are open, 12 x 16, 1 x 16, 12 x 4 and 1 x 4 follow, unless they are packed, and single
    outputs, of which there is always one.
    """
    if nest.fits is None:
        return
    nest = replace(nest, tile=replace(nest.tile, fetched=False))
    if not isinstance(nest.height, int):
        for rows in dict.fromkeys((max(1, nest.tile.rows // _FEWER), 1)):
            if rows < nest.tile.rows:
                yield replace(nest, tile=replace(nest.tile, rows=rows)), copy
    if not isinstance(nest.granule, int):
        for width in (nest.tile.width, nest.tile.width // _NARROWER) if copy is None else ():
            if 1 < width < nest.tile.columns:
                for rows in dict.fromkeys((nest.tile.rows, 1)):
                    narrow = replace(
                        nest.tile, rows=rows, columns=width, width=width, fetched=False
                    )
                    yield replace(nest, tile=narrow), None
        single = replace(nest.tile, rows=1, columns=1, width=1, packed=False)
        yield replace(nest, tile=single), None


def _needed(tiled: Sequence[loops.Tiled], known: OpenSizes | None) -> Sequence[loops.Tiled]:
    """Leave out what follows a tile of which there is one even at the smallest sizes.

    Where rows and columns are one size, a tile is left out, too, if it needs as much as the last:
    TVM refuses loops that it can prove are never run.
    """
    needed: list[loops.Tiled] = []
    for nest, copy in tiled:
        tile, square = nest.tile, tvm_ffi.structural_equal(nest.height, nest.granule)
        if needed and square and _side(tile) >= _side(needed[-1][0].tile):
            continue
        needed.append((nest, copy))
        sides = ((nest.height, tile.rows), (nest.granule, tile.columns))
        if all(isinstance(side[0], int) or is_at_least(*side, known) for side in sides):
            break
    return needed


def _side(tile: Tile) -> int:
    return max(tile.rows, tile.columns)


def prepared(
    sch: Schedule, sum_name: str, before: Sequence[str], width: int
) -> list[tvm.tirx.Stmt]:
    """Return a loop nest for each operand that is computed first, such as a padded image.

    `sum_name` and `before` are names of blocks: what reduces, and what stands before it.
    """
    operands = {sch.get(block).name_hint for block in sch.get_producers(sch.get_sblock(sum_name))}
    for name in before:
        if name not in operands:
            sch.compute_inline(sch.get_sblock(name))
    nests, known = [], known_of(sch.mod["main"])
    for name in before:
        if name in operands:
            padding = Padding.of(sch.get(sch.get_sblock(name)))
            if padding is None:
                spread_vectors(sch, sch.get_sblock(name), width)
            nests.append(padding.write(width) if padding else guarded(_outermost(sch, name), known))
    return nests


def _outermost(sch: Schedule, name: str) -> tvm.tirx.Stmt:
    """Return the outermost loop around a block."""
    return sch.get(sch.get_loops(sch.get_sblock(name))[0])
