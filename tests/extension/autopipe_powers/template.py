"""Template `chunks`: one elementwise loop, in parallel, so many vectors at a time."""

from dataclasses import dataclass
from math import prod

from tvm.s_tir import Schedule

NAME = "chunks"
VERSION = 1


@dataclass(frozen=True)
class Chunk:
    """The knobs."""

    elements: int
    """Elements in a vectorized loop, a power of two that divides the number of them all."""


@dataclass(frozen=True)
class Elementwise:
    """A function that the template serves."""

    block: str
    elements: int


def match(sch: Schedule) -> Elementwise | None:
    """Serve functions of a single block called `product`."""
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if [block.name_hint for block in blocks] != ["product"]:
        return None
    return Elementwise("product", prod(int(axis.dom.extent) for axis in blocks[0].iter_vars))


def settings(found, hardware):
    """Yield one to four vectors."""
    for vectors in (1, 2, 4):
        if found.elements % (elements := vectors * hardware.lanes(32)) == 0:
            yield Chunk(elements)


def fill(found, hardware):
    """Return the shortest loop."""
    return next(settings(found, hardware))


def apply(sch, found, knobs):
    """Schedule the function."""
    loop = sch.fuse(*sch.get_loops(sch.get_sblock(found.block)))
    outer, inner = sch.split(loop, [None, knobs.elements])
    sch.parallel(outer)
    sch.vectorize(inner)
