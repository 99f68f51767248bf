"""Describes the contraction or other reduction that a block computes.

Example: the block of `y[i, j] += x[i, k] * w[j, k]` with 8 x 20 outputs and 12 terms has the `term`
x[i, k] * w[j, k], `loads` x[i, k] and w[j, k], `axes` (i, j) with `extents` (8, 20), and `sums` (k)
with `terms` (12). The load x[i, k] depends on the spatial axis 0 and the summed axis 0, and each
element of x occurs once over these axes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import list_loads
from autopipe.schedules.analysis.blocks import (
    Extent,
    bind_axes,
    extent_of,
    extents_of,
    lengths_of,
    variables_of,
)
from autopipe.schedules.analysis.expressions import count_occurrences, replace_variables
from autopipe.schedules.analysis.reducer import Reducer, is_inside

_MIN_PACKED_READS: Final = 8
"""Minimum reads of an element for which packing the tensor pays."""


@dataclass(frozen=True, slots=True)
class Product:
    """The sum of products, or other reduction, that a block computes."""

    block: SBlock
    term: tvm.ir.Expr
    """The summand."""
    loads: Sequence[TensorLoad]
    """The loads in the term, one for each operand."""
    axes: Sequence[tvm.ir.Var]
    """The spatial axes."""
    extents: tuple[int, ...]
    """Extents of the spatial axes."""
    sums: Sequence[tvm.ir.Var]
    """The axes that are summed over, the outermost first."""
    terms: tuple[int, ...]
    """Extents of the summed axes."""
    lengths: tuple[Extent, ...]
    """Extents of the spatial axes, as expressions where dynamic; `extents` has -1 there."""
    steps: tuple[Extent, ...]
    """The same of the summed axes."""
    reducer: Reducer | None = None
    """The reducer; None for a sum of products."""

    @property
    def stores(self) -> tuple[tvm.tirx.BufferStore, ...]:
        """The stores of the results."""
        return self.reducer.finals if self.reducer else (self.block.body,)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the accumulators; those of positions may be narrower than the results."""
        return tuple(str(start.ty.dtype) for start in self.starts)

    @property
    def starts(self) -> tuple[tvm.ir.Expr, ...]:
        """Initial values of the results."""
        return self.reducer.starts if self.reducer else (self.block.init.value,)

    @classmethod
    def reduced(cls, block: SBlock) -> "Product | None":
        """Describe a reduction by any operator, or return None if the block is none."""
        extents, terms = extents_of(block), extents_of(block, spatial=False)
        reducer = Reducer.of(block) if extents and min(*extents, *terms, 1) > 0 else None
        if reducer is None:
            return None
        analyzer = bind_axes(block)
        reducer = reducer.evened(analyzer).narrowed(analyzer)
        return cls._describe(block, reducer.values[0], reducer.operands(), reducer)

    @classmethod
    def of(cls, block: SBlock, *, dynamic_sizes: bool = False) -> "Product | None":
        """Describe a sum of products, or return None if the block is none.

        None, too, if an extent is dynamic, unless `dynamic_sizes` allows it.
        """
        extents, terms = extents_of(block), extents_of(block, spatial=False)
        product = _find_added_product(block)
        if product is None or not extents or 0 in (*extents, *terms):
            return None
        if -1 in (*extents, *terms) and not dynamic_sizes:
            return None
        single_values = [
            (axis.var, axis.dom.min) for axis in block.iter_vars if extent_of(axis.dom.extent) == 1
        ]
        analyzer = bind_axes(block)  # divisions by extents, as after a reshape, cancel
        term = analyzer.simplify(replace_variables(product, single_values))
        return cls._describe(block, term, list_loads(term))

    @classmethod
    def _describe(
        cls,
        block: SBlock,
        term: tvm.ir.Expr,
        loads: list[TensorLoad],
        reducer: Reducer | None = None,
    ) -> "Product":
        """Describe a reduction by its summand and the axes of its block."""
        spatial, summed = (variables_of(block, spatial=kind) for kind in (True, False))
        extents, terms = (extents_of(block, spatial=kind) for kind in (True, False))
        lengths, steps = (lengths_of(block, spatial=kind) for kind in (True, False))
        return cls(block, term, loads, spatial, extents, summed, terms, lengths, steps, reducer)

    def is_load(self, load: TensorLoad, position: int) -> bool:
        """Tell whether a load is the one at a position."""
        operand = self.loads[position]
        is_equal = self.reducer is not None and tvm_ffi.structural_equal(load, operand)
        return bool(load.same_as(operand) or is_equal)

    def guards(self, axis: int) -> bool:
        """Tell whether a branch around operands depends on a spatial axis."""
        branches = self.reducer.branches() if self.reducer else []
        return any(count_occurrences(branch, self.axes[axis]) for branch in branches)

    def pays_to_copy(self, load: TensorLoad) -> bool:
        """Tell whether an operand may be packed, and its elements are read at least 8 times."""
        if self.reducer is None:
            return True
        uses = math.prod((*self.extents, *self.terms)) / math.prod(map(int, load.source.ty.shape))
        analyzer = bind_axes(self.block)
        return uses >= _MIN_PACKED_READS and (
            not self.reducer.branches() or is_inside(load, analyzer)
        )

    def copied(self, load: TensorLoad) -> tuple[list[int], list[int]]:
        """Return the positions of the spatial and of the summed axes that a load depends on."""
        spatial = [i for i, var in enumerate(self.axes) if count_occurrences(load, var)]
        sums = [i for i, var in enumerate(self.sums) if count_occurrences(load, var)]
        return spatial, sums

    def copies(self, load: TensorLoad) -> float:
        """Return the average number of reads of an element of the buffer along the load's axes.

        Example: 1 for x[i, k]; about 7 for the input x[h + r, w + s, k] of a 3x3 convolution of
        14 x 14 pixels: 14 * 14 * 9 reads of 16 * 16 padded pixels.
        """
        spatial, sums = self.copied(load)
        uses = math.prod([self.extents[i] for i in spatial] + [self.terms[i] for i in sums])
        return uses / math.prod(map(int, load.source.ty.shape))


def _find_added_product(block: SBlock) -> tvm.ir.Expr | None:
    """Return the product that a block adds to its result, or None."""
    store = block.body
    total = getattr(store, "value", None)
    if not isinstance(total, tvm.tirx.Add) or len(block.writes) != 1:
        return None
    addends = [
        side
        for side in (total.a, total.b)
        if not (isinstance(side, TensorLoad) and side.source.same_as(store.buffer))
    ]
    return addends[0] if len(addends) == 1 and _is_product(addends[0]) else None


def _is_product(term: tvm.ir.Expr) -> bool:
    bare = term.value if isinstance(term, tvm.tirx.Cast) else term
    return isinstance(bare, tvm.tirx.Mul) and len(list_loads(bare)) > 1
