"""Recognizes int8 and bfloat16 contractions, with int32 and float32 accumulators.

These are quantized convolutions and matrix products. One operand has the innermost reduction along
its last axis, so that neighbours of it are the operands of an instruction; the template packs the
other one, the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tvm
from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.graph.weights import list_weights
from autopipe.schedules.analysis.blocks import axes_of, extents_of, is_product, is_static
from autopipe.schedules.analysis.dot_products import Operands
from autopipe.schedules.analysis.single_reduction import SingleReduction, split_at_reduction

_SUMS: Final = {"int8": "int32", "uint8": "int32", "bfloat16": "float32"}
"""Dtypes of operands, with that of their accumulators."""
_OPERANDS: Final = 2
_PLANE: Final = 2
"""A tile has two axes."""


@dataclass(frozen=True)
class ShortSum(SingleReduction):
    """An int8 or bfloat16 contraction, with the blocks before and after it."""

    depth: int
    """Extent of its innermost reduction."""
    operands: Operands
    """Dtypes of the input and of the weights."""
    weights: int
    """Position of the weights among the operands of the block: 0 or 1."""
    axes: tuple[int, int]
    """The axes of the weights along the last spatial axis and along the innermost reduction."""
    free: bool
    """Whether the weights are a parameter with a free layout."""


def match_short_sum(sch: Schedule) -> ShortSum | None:
    """Describe the int8 or bfloat16 contraction of a function, or return None without one."""
    parts = split_at_reduction(sch)
    if parts is None or not _is_short_sum(parts[1]):
        return None
    before, block, after = parts
    spatial, reduction_axes = axes_of(block)
    weights = _find_weights(block, spatial[-1].var, reduction_axes[-1].var)
    extents = extents_of(block)
    is_elementwise = all(extents_of(other) == extents for other in after[-1:])
    if weights is None or not is_elementwise or len(spatial) < _PLANE:
        return None
    operand, axes = weights
    return ShortSum(
        name=block.name_hint,
        inlined=(),
        before=tuple(other.name_hint for other in before),
        after=tuple(other.name_hint for other in after),
        extents=extents,
        depth=int(reduction_axes[-1].dom.extent),
        operands=(_list_dtypes(block)[1 - operand], _list_dtypes(block)[operand]),
        weights=operand,
        axes=axes,
        free=any(
            block.reads[operand].source.same_as(param) for param in list_weights(sch.mod["main"])
        ),
    )


def _is_short_sum(block: SBlock) -> bool:
    """Tell whether a block sums products of int8 in int32, or of bfloat16 in float32."""
    if len(block.reads) != _OPERANDS or not is_static(block) or not is_product(block):
        return False
    sums = {_SUMS.get(dtype) for dtype in _list_dtypes(block)}
    return sums == {str(block.writes[0].source.dtype)}


def _find_weights(
    block: SBlock, column: tvm.tirx.Var, depth: tvm.tirx.Var
) -> tuple[int, tuple[int, int]] | None:
    """Return the position of the weights and their axes along `column` and `depth`, or None.

    The weights are the operand that both variables index; the last axis of the other operand must
    be `depth`.
    """
    regions = [read.region for read in block.reads]
    for operand, region in enumerate(regions):
        axes = _find_index_axes(region, column) + _find_index_axes(region, depth)
        if len(axes) == _PLANE and regions[1 - operand][-1].min.same_as(depth):
            return operand, (axes[0], axes[1])
    return None


def _find_index_axes(region: Sequence[tvm.ir.Range], variable: tvm.tirx.Var) -> list[int]:
    """Return the axes of a region that are indexed by a plain variable."""
    return [axis for axis, part in enumerate(region) if part.min.same_as(variable)]


def _list_dtypes(block: SBlock) -> list[str]:
    return [str(read.source.dtype) for read in block.reads]
