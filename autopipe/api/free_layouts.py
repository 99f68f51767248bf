"""Leaves the layout of weights as it is where a function alone uses each of them a few times.

A PrimFunc may name inputs whose layout is free. Templates then pack them, which a build does once,
before a model is called. Nobody does so for a function alone: it packs them in each call. For
convolutions that pays, as each weight is multiplied by all pixels. A dense layer of few rows reads
its weights where they lie: [1, 1000] by [512, 1000] took 178 us of which the product was 16.
"""

import math
from typing import Final

import tvm_ffi
from tvm.ir import Var
from tvm.s_tir import SBlock
from tvm.tirx import PrimFunc

from autopipe.compiler.graph import weights
from autopipe.schedules.analysis.blocks import extents_of, is_spatial
from autopipe.schedules.analysis.expressions import loads_of
from autopipe.schedules.templates.contraction import choose_unpacked_rows

_FREE: Final = "layout_free_buffers"


def drop_unpaid_free_layouts(function: PrimFunc) -> PrimFunc:
    """Return a function of constant sizes without free layouts of what is used a few times."""
    free = weights.list_weights(function)
    if not free:
        return function
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(function.body, (SBlock, blocks.append))
    kept = [one for one in free if not _is_used_rarely(one, blocks)]
    if len(kept) == len(free):
        return function
    positions = [i for i, one in enumerate(function.params) if any(map(one.same_as, kept))]
    bare = function.without_attr(_FREE)
    return bare.with_attr(_FREE, positions) if positions else bare


def _is_used_rarely(weight: Var, blocks: list[SBlock]) -> bool:
    """Tell whether only sums read a weight, each element for a few outputs."""
    readers = [block for block in blocks if block.iter_vars and _is_weight_read(block, weight)]
    if not readers or any(map(is_spatial, readers)):
        return False
    size = math.prod(map(int, weight.shape))
    return all(
        math.prod(_list_extents(one)) <= choose_unpacked_rows(_list_extents(one)[-1]) * size
        for one in readers
    )


def _list_extents(block: SBlock) -> list[int]:
    """Return the extents of the axes of a sum, outputs first."""
    return [*extents_of(block), *extents_of(block, spatial=False)]


def _is_weight_read(block: SBlock, weight: Var) -> bool:
    value = getattr(block.body, "value", None)
    return value is not None and any(load.source.same_as(weight) for load in loads_of(value))
