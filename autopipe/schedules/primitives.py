"""Makes loops parallel where that pays."""

import math
from typing import Final

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from autopipe.schedules.analysis.blocks import extents_of

PRODUCTS: Final = 1 << 20
"""Multiply-adds below which one thread ends before a second one has started: microseconds."""

ELEMENTS: Final = 1 << 14
"""Elements below which the same is true of a block that only moves or combines elements."""

_SYMBOLIC: Final = 64
"""The value that a size counts as that is not known before the model runs."""


def spread_vectors(sch: Schedule, block: SBlockRV, most: int) -> None:
    """Compute a block in parallel, in vectors of at most `most` elements."""
    *outer, last = sch.get_loops(block)
    rest, vector = sch.split(last, [None, math.gcd(int(sch.get(last).extent), most)])
    spread(sch, block, sch.fuse(*outer, rest), ELEMENTS)
    sch.vectorize(vector)


def spread(sch: Schedule, block: SBlockRV, loop: LoopRV, least: int) -> None:
    """Run a loop around a block in parallel if the block has at least `least` iterations."""
    sizes = *extents_of(sch.get(block)), *extents_of(sch.get(block), spatial=False)
    if math.prod(_SYMBOLIC if size < 0 else size for size in sizes) >= least:
        sch.parallel(loop)
