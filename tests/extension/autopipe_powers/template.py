"""Template `chunks`: one elementwise loop, in parallel, so many vectors at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvm.s_tir import Schedule

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.template import Template


@dataclass(frozen=True)
class Chunk:
    """The knobs."""

    elements: int
    """Elements in a vectorized loop, a power of two that divides the number of them all."""


@dataclass(frozen=True)
class ProductBlock:
    """A function that the template serves."""

    name: str
    elements: int


class ChunksTemplate(Template[ProductBlock, Chunk]):
    """Functions of a single block called `product`."""

    name = "chunks"
    version = 1

    def match(self, sch: Schedule) -> ProductBlock | None:
        """Return the block, or None if there are others."""
        blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
        if [block.name_hint for block in blocks] != ["product"]:
            return None
        return ProductBlock("product", prod(int(axis.dom.extent) for axis in blocks[0].iter_vars))

    def settings(self, match: ProductBlock, hardware: HardwareParams) -> Iterator[Chunk]:
        """Yield one to four vectors."""
        for vectors in (1, 2, 4):
            if match.elements % (elements := vectors * hardware.lanes(32)) == 0:
                yield Chunk(elements)

    def fill(self, match: ProductBlock, hardware: HardwareParams) -> Chunk:
        """Return the shortest loop."""
        return next(self.settings(match, hardware))

    def apply(self, sch: Schedule, match: ProductBlock, knobs: Chunk) -> None:
        """Schedule the function."""
        loop = sch.fuse(*sch.get_loops(sch.get_sblock(match.name)))
        outer, inner = sch.split(loop, [None, knobs.elements])
        sch.parallel(outer)
        sch.vectorize(inner)


CHUNKS = ChunksTemplate()
