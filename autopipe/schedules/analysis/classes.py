"""Classes of blocks, after the RFC "Auto-Schedule from Compute Declaration" (apache/tvm#2954).

The class determines the candidate schedules. The RFC names four; the criteria are ours: whether a
block reduces, whether it has data reuse, and the classes of its neighbours.

Example: a convolution with padding and ReLU, then a softmax.

    pad       location-tunable   feeds the next sum: in full, or tile by tile inside its loops
    conv2d    complex reduction  each pixel is read for every output channel: tiles in registers
    relu      location-tunable   reads one sum each: applied to a tile while that is in registers
    max, sum  simple reduction   each element is read once: rows in parallel, partial results
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import tvm
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import SBlockRV

from autopipe.compiler.find_nodes import is_among
from autopipe.schedules.analysis.blocks import extents_of, is_copy, is_spatial


class BlockClass(StrEnum):
    """The kinds of computation of a block."""

    DIRECT = "direct compute"
    """Each output from a few inputs; inlined, or computed in memory order."""
    SIMPLE_REDUCTION = "simple reduction"
    """A reduction without data reuse: memory-bound."""
    COMPLEX_REDUCTION = "complex reduction"
    """A reduction with data reuse across outputs: tiled for caches and registers."""
    LOCATION_TUNABLE = "location-tunable"
    """Direct, adjacent to a reduction: it may be computed inside the loops of that."""
    OPAQUE = "opaque"
    """Without declared reads and writes, or without axes; not scheduled."""


@dataclass(frozen=True, slots=True)
class ClassifiedBlock:
    """A block of a function, and its class."""

    name: str
    kind: BlockClass
    extents: tuple[int, ...]
    """Iterations of its spatial axes."""
    reduces: tuple[int, ...]
    """Iterations of its reduction axes."""

    def __str__(self) -> str:
        """Format as one line: name, class and iterations."""
        over = f" over {'x'.join(map(str, self.reduces))}" if self.reduces else ""
        return f"{self.name}: {self.kind}, {'x'.join(map(str, self.extents)) or '1'}{over}"


def classify_blocks(module: tvm.IRModule) -> tuple[ClassifiedBlock, ...]:
    """Return the class of each outermost block of `main`, in order; none if TIR has no blocks."""
    sch = Schedule(module, debug_mask="none", error_render_level="none")
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except RuntimeError:  # a function of one block without axes, such as a sort, has no root
        body = module["main"].body
        name = body.block.name_hint if isinstance(body, SBlockRealize) else None
        return (ClassifiedBlock(name, BlockClass.OPAQUE, (), ()),) if name else ()
    return tuple(_classify_block(sch, block) for block in blocks)


def _classify_block(sch: Schedule, rv: SBlockRV) -> ClassifiedBlock:
    block = sch.get(rv)
    extents, reduces = extents_of(block), extents_of(block, spatial=False)
    return ClassifiedBlock(block.name_hint, _find_block_class(sch, rv, block), extents, reduces)


def _find_block_class(sch: Schedule, rv: SBlockRV, block: SBlock) -> BlockClass:
    if not block.iter_vars or not block.writes:
        return BlockClass.OPAQUE
    if not is_spatial(block):
        return BlockClass.COMPLEX_REDUCTION if _has_reuse(block) else BlockClass.SIMPLE_REDUCTION
    feeds = any(not is_spatial(sch.get(one)) for one in sch.get_consumers(rv))
    follows = any(not is_spatial(sch.get(one)) for one in sch.get_producers(rv))
    is_tunable = follows or (feeds and not is_copy(block))
    return BlockClass.LOCATION_TUNABLE if is_tunable else BlockClass.DIRECT


def _has_reuse(block: SBlock) -> bool:
    """Tell whether a reduction reads some operand more often than the operand has elements.

    Example: with 8 x 20 outputs and 12 terms, a product runs 1,920 times and reads 8 x 12 and
    20 x 12 elements; a sum of rows runs as often as its operand has elements.
    """
    runs = math.prod((*extents_of(block), *extents_of(block, spatial=False)))
    results = [region.source for region in block.writes]
    operands = [r.source for r in block.reads if not is_among(r.source, results)]
    sizes = [math.prod(map(int, o.shape)) for o in operands if all(map(_is_constant, o.shape))]
    return any(1 < size < runs for size in sizes)


def _is_constant(size: object) -> bool:
    return isinstance(size, tvm.tirx.IntImm)
