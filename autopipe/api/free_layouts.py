"""Drop free layouts of weights that a standalone function uses too rarely to pay for packing.

A PrimFunc may name inputs with a free layout. Templates then pack them, which a build does once,
before a model is called. A standalone function packs them in each call. For convolutions that
pays, as each weight is multiplied by all pixels. A dense layer of few rows is faster on unpacked
weights: [1, 1000] by [512, 1000] took 178 us, of which the matmul was 16.
"""

import math
from typing import Final

from tvm.ir import Var
from tvm.s_tir import SBlock
from tvm.tirx import PrimFunc

from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.compiler.graph import weights
from autopipe.schedules.analysis.blocks import extents_of, is_spatial
from autopipe.schedules.templates.contraction import choose_unpacked_rows

_FREE: Final = "layout_free_buffers"


def drop_unpaid_free_layouts(function: PrimFunc) -> PrimFunc:
    """Remove the free layouts of rarely used weights from a function with static shapes."""
    free = weights.list_weights(function)
    if not free:
        return function
    blocks = find_nodes(function.body, SBlock)
    packed_weights = [one for one in free if not _is_used_rarely(one, blocks)]
    if len(packed_weights) == len(free):
        return function
    positions = [i for i, one in enumerate(function.params) if is_among(one, packed_weights)]
    bare = function.without_attr(_FREE)
    return bare.with_attr(_FREE, positions) if positions else bare


def _is_used_rarely(weight: Var, blocks: list[SBlock]) -> bool:
    """Whether only reductions read a weight, each element for a few outputs."""
    readers = [block for block in blocks if block.iter_vars and _is_weight_read(block, weight)]
    if not readers or any(map(is_spatial, readers)):
        return False
    size = math.prod(map(int, weight.shape))
    return all(
        math.prod(_list_extents(one)) <= choose_unpacked_rows(_list_extents(one)[-1]) * size
        for one in readers
    )


def _list_extents(block: SBlock) -> list[int]:
    """List the extents of a reduction block's axes, spatial axes first."""
    return [*extents_of(block), *extents_of(block, spatial=False)]


def _is_weight_read(block: SBlock, weight: Var) -> bool:
    value = getattr(block.body, "value", None)
    return value is not None and any(load.source.same_as(weight) for load in list_loads(value))
