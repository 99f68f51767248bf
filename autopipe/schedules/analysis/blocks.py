"""Classifies a block of a PrimFunc, as far as schedules depend on it."""

import math
from collections.abc import Iterable
from typing import Final, TypeAlias

import tvm
from tvm.s_tir import SBlock
from tvm.sym import Analyzer

from autopipe.compiler.graph.literals import sizes
from autopipe.compiler.open_sizes import OpenSizes, least, most
from autopipe.schedules import type_hints

type_hints.remember()  # every template looks at blocks

SPATIAL: Final = tvm.tirx.IterVar.DataPar
"""The kind of an axis whose iterations do not depend on each other."""

_OPERANDS: Final = 2


def extents_of(block: SBlock, *, spatial: bool = True) -> tuple[int, ...]:
    """Return the extents of a block's spatial axes, or of its reduction axes; -1 if symbolic."""
    chosen = (a.dom.extent for a in block.iter_vars if (a.iter_type == SPATIAL) == spatial)
    return sizes(chosen)


Extent: TypeAlias = int | tvm.ir.Expr
"""A number of iterations: an expression where it hangs on open sizes."""


def extent_of(extent: tvm.ir.Expr) -> Extent:
    """Return an extent as a number where it is one."""
    return int(extent) if isinstance(extent, tvm.tirx.IntImm) else extent


def lengths_of(block: SBlock, *, spatial: bool = True) -> tuple[Extent, ...]:
    """Return the extents of a block's spatial axes, or of its reduction axes."""
    chosen = (a.dom.extent for a in block.iter_vars if (a.iter_type == SPATIAL) == spatial)
    return tuple(map(extent_of, chosen))


def number_of(value: Extent, dtype: str) -> tvm.ir.Expr:
    """Return an extent as an expression of a dtype, such as that of indices."""
    return tvm.tirx.IntImm(dtype, value) if isinstance(value, int) else value.astype(dtype)


def product_of(extents: Iterable[Extent]) -> Extent:
    """Return the product of extents, numbers first."""
    ordered = sorted(extents, key=lambda extent: not isinstance(extent, int))
    total: Extent = math.prod(ordered)
    return total


def parts_of(extent: Extent, size: int) -> Extent:
    """Return how many parts of a size an extent is cut into; the last one may be no whole part."""
    if isinstance(extent, int):
        return -(-extent // size)
    return (extent + (size - 1)) // size


def simplified(extent: Extent) -> Extent:
    """Return an extent in TVM's simplest form."""
    return extent if isinstance(extent, int) else extent_of(Analyzer().simplify(extent))


def enough(
    extents: Iterable[Extent], wanted: int, known: OpenSizes | None = None
) -> bool | tvm.ir.Expr:
    """Tell whether a product of extents is so large; a condition if that hangs on open sizes."""
    total = product_of(extents)
    if isinstance(total, int) or known is None:
        return total >= wanted
    if least(total, known) >= wanted:
        return True
    return False if most(total, known) < wanted else total >= wanted


def is_spatial(block: SBlock) -> bool:
    """Tell whether the block reduces nothing."""
    return all(axis.iter_type == SPATIAL for axis in block.iter_vars)


def is_static(block: SBlock) -> bool:
    """Tell whether all extents of the block are known."""
    return all(isinstance(axis.dom.extent, tvm.tirx.IntImm) for axis in block.iter_vars)


def is_copy(block: SBlock) -> bool:
    """Tell whether the block only moves elements."""
    return isinstance(getattr(block.body, "value", None), tvm.ir.TensorLoad)


def is_product(block: SBlock) -> bool:
    """Tell whether the block adds a product of operands to its result."""
    total = getattr(block.body, "value", None)
    if not isinstance(total, tvm.tirx.Add) or len(block.reads) < _OPERANDS:
        return False
    return any(isinstance(_uncast(term), tvm.tirx.Mul) for term in (total.a, total.b))


def bits(block: SBlock) -> int:
    """Return the size in bits of an element that the block writes."""
    return int(tvm.runtime.DataType(block.writes[0].source.dtype).bits)


def _uncast(term: tvm.ir.Expr) -> tvm.ir.Expr:
    """Return an expression without the cast around it, if there is one."""
    return term.value if isinstance(term, tvm.tirx.Cast) else term
