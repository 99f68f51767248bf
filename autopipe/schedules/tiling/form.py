"""Recognizes a function that sums products, from its TIR alone.

This is `match` of the template `contraction`: the knobs depend on its result alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.find_nodes import list_loads
from autopipe.compiler.graph import weights
from autopipe.schedules.analysis.blocks import element_bits, extents_of, is_copy, is_spatial
from autopipe.schedules.analysis.effort import estimate_call_ns
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.simple_indices import to_simple_indices
from autopipe.schedules.analysis.single_reduction import SingleReduction, split_at_reduction
from autopipe.schedules.primitives import inline_blocks
from autopipe.schedules.tiling.lines import Lines, choose_tile_axes


@dataclass(frozen=True)  # derived numbers are kept: thousands of tiles ask
class Contraction(SingleReduction):
    """A function that sums products, as the knobs depend on it.

    Example: a 3x3 convolution of an image [1, 56, 56, 64] (NHWC) with 64 outputs, bias and ReLU
    has `name` "conv2d_nhwc", `before` ("pad_temp",), `after` ("T_add", "compute"), `extents`
    (1, 56, 56, 64), `terms` (3, 3, 64) and `bits` 32. A tile's rows lie along axis 2 (the width)
    and its columns along axis 3 (the channels), so `height` is 56 and `breadth` 64.
    """

    terms: tuple[int, ...]
    """Extents of the axes that it sums over, the outermost first."""
    bits: int
    """Size of an element of the sum, in bits."""
    lines: Lines
    """The axes along which the rows and columns of a tile lie."""
    results: int = 1
    """Results of each output, such as the largest element and where it is."""
    sums_products: bool = True
    """Whether it sums products; else it reduces in any other way."""
    calls_ns: float = 0.0
    """Time of the elementary functions in such a reduction on one core, in nanoseconds."""

    @cached_property
    def height(self) -> int:
        """Number of outputs along the axes of the rows."""
        return math.prod(self.extents[axis] for axis in self.lines.rows)

    @cached_property
    def breadth(self) -> int:
        """Number of outputs along the axes of the columns."""
        return math.prod(self.extents[axis] for axis in self.lines.columns)

    @cached_property
    def products(self) -> int:
        """Number of multiply-adds for all outputs."""
        return math.prod(self.extents) * math.prod(self.terms)

    @cached_property
    def column_elements(self) -> int:
        """Number of elements of the operand along the columns, such as weights."""
        columns_in_all_batches = self.breadth * math.prod(
            self.extents[axis] for axis in self.lines.batch
        )
        return columns_in_all_batches * math.prod(self.terms)

    @cached_property
    def ordered(self) -> bool:
        """Whether columns that are neighbours are neighbours in the output's memory."""
        return self.lines.columns[-1] == len(self.extents) - 1

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The spatial axes along which a tile has a single output."""
        tile_axes = {*self.lines.rows, *self.lines.columns}
        return tuple(axis for axis in range(len(self.extents)) if axis not in tile_axes)


def match_contraction(
    sch: Schedule, read: Callable[[SBlock], Product | None] = Product.of
) -> Contraction | None:
    """Match a function as a contraction; None if it is for another template.

    `read` parses a block as a product, or as a reduction of another form.

    A function is served if exactly one of its blocks sums, this block sums a product, and each
    block after it computes an output from one sum. Copies of operands, such as a transpose, are
    left out first; if no tile fits then, they stay.
    """
    parts = split_at_reduction(sch)
    if parts is None:
        return None
    before, total, after = parts
    copies = tuple(block.name_hint for block in before if is_copy(block))
    for inlined_copies in dict.fromkeys([copies, ()]):
        product, tile_axes = _find_tile_axes(sch, total.name_hint, inlined_copies, read)
        if product is None or any(not _is_elementwise(block, product.extents) for block in after):
            return None
        if tile_axes is not None:
            return Contraction(
                name=product.block.name_hint,
                inlined=inlined_copies,
                before=tuple(b.name_hint for b in before if b.name_hint not in inlined_copies),
                after=tuple(block.name_hint for block in after),
                extents=product.extents,
                terms=product.terms,
                bits=max(map(element_bits, product.dtypes)),
                lines=tile_axes,
                results=len(product.stores),
                sums_products=product.reducer is None,
                calls_ns=0.0 if product.reducer is None else estimate_call_ns(product.block),
            )
    return None


def _find_tile_axes(
    sch: Schedule,
    name: str,
    inlined_copies: tuple[str, ...],
    read: Callable[[SBlock], Product | None],
) -> tuple[Product | None, Lines | None]:
    """Return the product that a block sums without some copies, and the axes of its tiles."""
    trial = sch.copy() if inlined_copies else sch
    inline_blocks(trial, inlined_copies)
    product = read(trial.get(trial.get_sblock(name)))
    return product, choose_tile_axes(
        product, weights.list_weights(sch.mod["main"])
    ) if product else None


def _is_elementwise(block: SBlock, extents: tuple[int, ...]) -> bool:
    """Tell whether a block computes an output from each sum, in order.

    Axes of one element may come and go, as where a batch of heads is reshaped.
    """
    block_extents = extents_of(block)
    if block_extents == extents:
        return True
    long = [extent for extent in extents if extent > 1]
    axes = [
        axis.var for axis, extent in zip(block.iter_vars, block_extents, strict=False) if extent > 1
    ]
    if not is_spatial(block) or [extent for extent in block_extents if extent > 1] != long:
        return False
    for load in list_loads(to_simple_indices(block).body.value):
        shape = list(map(int, load.source.ty.shape))
        if [n for n in shape if n > 1] == long:
            varying_indices = [index for index, n in zip(load.indices, shape, strict=True) if n > 1]
            if len(varying_indices) != len(axes) or not all(
                map(tvm.ir.Expr.same_as, varying_indices, axes)
            ):
                return False
    return True
