"""Recognises a function that sums products, by its TIR alone."""

import math
from dataclasses import dataclass

from tvm.s_tir import Schedule

from autopipe.compiler.graph import weights
from autopipe.schedules.analysis.blocks import bits, extents_of, is_copy, is_spatial
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.tiling.lines import Lines, lines


@dataclass(frozen=True, slots=True)
class Contraction:
    """A function that sums products, as far as the knobs depend on it."""

    name: str
    """Name of the block that sums."""
    inlined: tuple[str, ...]
    """Copies of operands that are left out, as their source is read in place."""
    before: tuple[str, ...]
    """Other blocks that prepare operands, such as padding."""
    after: tuple[str, ...]
    """Elementwise blocks on its result, in order."""
    extents: tuple[int, ...]
    """Extents of its spatial axes."""
    terms: tuple[int, ...]
    """Extents of the axes that it sums over, outermost first."""
    bits: int
    """Width of an element of the sum."""
    lines: Lines
    """Where the rows and columns of a tile lie."""

    @property
    def height(self) -> int:
        """Outputs along the rows."""
        return math.prod(self.extents[axis] for axis in self.lines.rows)

    @property
    def breadth(self) -> int:
        """Outputs along the columns."""
        return math.prod(self.extents[axis] for axis in self.lines.columns)

    @property
    def products(self) -> int:
        """Multiply-adds, those that all outputs take."""
        return math.prod(self.extents) * math.prod(self.terms)

    @property
    def others(self) -> tuple[int, ...]:
        """The spatial axes along which a tile has one output."""
        tiled = {*self.lines.rows, *self.lines.columns}
        return tuple(axis for axis in range(len(self.extents)) if axis not in tiled)


def recognize(sch: Schedule) -> Contraction | None:
    """Return what a function sums, or None if it is for another template."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    sums = [i for i, block in enumerate(blocks) if not is_spatial(block)]
    if len(sums) != 1:
        return None
    before = [block.name_hint for block in blocks[: sums[0]]]
    after = blocks[sums[0] + 1 :]
    copies = tuple(name for name, block in zip(before, blocks, strict=False) if is_copy(block))
    for inlined in dict.fromkeys([copies, ()]):
        product, found = _lines(sch, blocks[sums[0]].name_hint, inlined)
        if product is None or any(extents_of(block) != product.extents for block in after):
            return None
        if found is not None:
            return Contraction(
                name=product.block.name_hint,
                inlined=inlined,
                before=tuple(name for name in before if name not in inlined),
                after=tuple(block.name_hint for block in after),
                extents=product.extents,
                terms=product.terms,
                bits=bits(product.block),
                lines=found,
            )
    return None


def _lines(
    sch: Schedule, name: str, inlined: tuple[str, ...]
) -> tuple[Product | None, Lines | None]:
    """Return what a block sums where some copies are left out, and the lines of its tiles."""
    tried = sch.copy() if inlined else sch
    for copy in inlined:
        tried.compute_inline(tried.get_sblock(copy))
    product = Product.of(tried.get(tried.get_sblock(name)))
    return product, lines(product, weights.free(sch.mod["main"])) if product else None
