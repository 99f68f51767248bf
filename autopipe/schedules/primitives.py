"""Makes loops parallel where that pays, and writes whole functions anew."""

import math
from collections.abc import Sequence
from typing import Final

from tvm.ir import Var
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Stmt

from autopipe.schedules.analysis.blocks import extents_of

PRODUCTS: Final = 1 << 20
"""Multiply-adds below which one thread ends before a second one has started: microseconds."""

ELEMENTS: Final = 1 << 14
"""Elements below which the same is true of a block that only moves or combines elements."""

_SYMBOLIC: Final = 64
"""The value that a size counts as that is not known before the model runs."""


def rewrite(sch: Schedule, body: Stmt, buffers: Sequence[Var] | None = None) -> None:
    """Put loops in the place of all that a function does.

    `buffers` are those that it allocates for itself, None for the ones that it had.
    """
    here = sch.get_sblock("root")
    root = sch.get(here)
    new = SBlock(
        [], root.reads, root.writes, root.name_hint, body,
        alloc_buffers=root.alloc_buffers if buffers is None else buffers,
        annotations=root.annotations,
    )  # fmt: skip
    sch.state.replace(sch.get_sref(here), new, {root: new})


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
