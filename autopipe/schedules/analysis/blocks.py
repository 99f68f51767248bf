"""Properties of the blocks of a PrimFunc: extents, axes, and predicates on their bodies."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi
from tvm import te
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    DynamicSizes,
    find_max_extent,
    find_min_extent,
)
from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph.literals import read_sizes
from autopipe.compiler.loops.code_equality import is_same_code
from autopipe.compiler.patches import cache_type_hints

cache_type_hints()  # every template looks at blocks

SPATIAL: Final = tvm.tirx.IterVar.DataPar
"""The type of an axis with independent iterations."""

_OPERANDS: Final = 2
ALWAYS: Final = tvm.tirx.const(1, "bool")
"""The predicate of a block without a condition."""


def extents_of(block: SBlock, *, spatial: bool = True) -> tuple[int, ...]:
    """Return the extents of a block's spatial axes, or of its reduction axes; -1 if symbolic."""
    extents = (a.dom.extent for a in block.iter_vars if (a.iter_type == SPATIAL) == spatial)
    return read_sizes(extents)


Extent: TypeAlias = int | tvm.ir.Expr
"""A number of iterations: an expression where a dimension is dynamic."""


def extent_of(extent: tvm.ir.Expr) -> Extent:
    """Convert an extent to an int where it is constant."""
    return int(extent) if isinstance(extent, tvm.tirx.IntImm) else extent


def lengths_of(block: SBlock, *, spatial: bool = True) -> tuple[Extent, ...]:
    """Return the extents of a block's spatial axes, or of its reduction axes."""
    extents = (a.dom.extent for a in block.iter_vars if (a.iter_type == SPATIAL) == spatial)
    return tuple(map(extent_of, extents))


def axes_of(block: SBlock) -> tuple[list[tvm.tirx.IterVar], list[tvm.tirx.IterVar]]:
    """Return the spatial axes of a block, and its reduction axes."""
    spatial = [axis for axis in block.iter_vars if axis.iter_type == SPATIAL]
    return spatial, [axis for axis in block.iter_vars if axis.iter_type != SPATIAL]


def variables_of(block: SBlock, *, spatial: bool = True) -> list[tvm.ir.Var]:
    """Return the variables of a block's spatial axes, or of its reduction axes."""
    return [axis.var for axis in block.iter_vars if (axis.iter_type == SPATIAL) == spatial]


def bind_axes(block: SBlock) -> Analyzer:
    """Return an analyzer with the axes of a block bound to their ranges."""
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    return analyzer


def bind_extents(pairs: Iterable[tuple[Any, int]]) -> Analyzer:
    """Return an analyzer with variables bound to ranges from 0, by their extents."""
    analyzer = Analyzer()
    for var, extent in pairs:
        analyzer.bind(var, tvm.ir.Range(0, number_of(extent, str(var.ty.dtype))))
    return analyzer


def element_bits(dtype: object) -> int:
    """Return the size of an element of a dtype in bits, at least 8."""
    return max(8, int(tvm.runtime.DataType(str(dtype)).bits))


def tensors_of(function: tvm.tirx.PrimFunc) -> list[tvm.ir.Var]:
    """Return the tensor parameters of a function, inputs and outputs."""
    return [one for one in function.params if isinstance(one.ty, tvm.tirx.BufferType)]


def has_reference_loops(
    function: tvm.tirx.PrimFunc,
    declare: Callable[..., te.Tensor],
    index_dtypes: Sequence[str | None] = ("int64",),
) -> bool:
    """Tell whether the loops of a function are those of the operation that `declare` declares."""
    operands = [
        te.placeholder(one.shape, str(one.dtype), one.name) for one in tensors_of(function)[:-1]
    ]
    try:
        arguments = [*operands, declare(*operands)]
        return any(
            is_same_code(te.create_prim_func(arguments, index_dtype_override=dtype), function)
            for dtype in index_dtypes
        )
    except (IndexError, RuntimeError, TypeError, ValueError):  # tensors of another operation
        return False


def number_of(value: Extent, dtype: str) -> tvm.ir.Expr:
    """Convert an extent to an expression of a dtype, such as that of indices."""
    return tvm.tirx.IntImm(dtype, value) if isinstance(value, int) else value.astype(dtype)


def product_of(extents: Iterable[Extent]) -> Extent:
    """Return the product of extents, constants first."""
    numbers_first = sorted(extents, key=lambda extent: not isinstance(extent, int))
    total: Extent = math.prod(numbers_first)
    return total


def parts_of(extent: Extent, size: int) -> Extent:
    """Return the number of parts of a size in an extent, rounded up."""
    if isinstance(extent, int):
        return -(-extent // size)
    return (extent + (size - 1)) // size


def simplify_extent(extent: Extent) -> Extent:
    """Simplify an extent by TVM's analyzer."""
    return extent if isinstance(extent, int) else extent_of(Analyzer().simplify(extent))


def is_large_enough(
    extents: Iterable[Extent], minimum: int, dynamic_sizes: DynamicSizes | None = None
) -> bool | tvm.ir.Expr:
    """Tell whether a product of extents reaches a minimum; a condition if sizes are dynamic."""
    total = product_of(extents)
    if isinstance(total, int) or dynamic_sizes is None:
        return total >= minimum
    if find_min_extent(total, dynamic_sizes) >= minimum:
        return True
    return False if find_max_extent(total, dynamic_sizes) < minimum else total >= minimum


def is_spatial(block: SBlock) -> bool:
    """Tell whether a block has no reduction axis."""
    return all(axis.iter_type == SPATIAL for axis in block.iter_vars)


def is_static(block: SBlock) -> bool:
    """Tell whether all extents of a block are constant."""
    return all(isinstance(axis.dom.extent, tvm.tirx.IntImm) for axis in block.iter_vars)


def is_whole(sch: Schedule, rv: SBlockRV) -> bool:
    """Tell whether the loops around a block run each of its instances once, in order.

    This holds for all blocks that TVM lowers from tensor expressions; hand-written loops may skip
    some instances.
    """
    block, loops = sch.get(rv), [sch.get(loop) for loop in sch.get_loops(rv)]
    realizes = find_nodes(sch.mod["main"].body, SBlockRealize)
    realize = next((one for one in realizes if one.block.same_as(block)), None)
    if realize is None or not tvm_ffi.structural_equal(realize.predicate, ALWAYS):
        return False
    unbound_loops = list(loops)
    for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
        fitting = [loop for loop in unbound_loops if value.same_as(loop.loop_var)]
        if fitting and _is_range(fitting[0], axis.dom):
            unbound_loops.remove(fitting[0])
        elif not _is_only(value, axis.dom):
            return False
    return all(
        isinstance(loop.extent, tvm.tirx.IntImm) and int(loop.extent) == 1 for loop in unbound_loops
    )


def _is_range(loop: tvm.tirx.For, domain: tvm.ir.Range) -> bool:
    pairs = ((loop.min, domain.min), (loop.extent, domain.extent))
    return all(extent_of(one) == extent_of(other) for one, other in pairs)


def _is_only(value: tvm.ir.Expr, domain: tvm.ir.Range) -> bool:
    return extent_of(domain.extent) == 1 and extent_of(value) == extent_of(domain.min)


def is_copy(block: SBlock) -> bool:
    """Tell whether a block only copies elements."""
    return isinstance(getattr(block.body, "value", None), tvm.ir.TensorLoad)


def is_product(block: SBlock) -> bool:
    """Tell whether a block adds a product of operands to its result."""
    total = getattr(block.body, "value", None)
    if not isinstance(total, tvm.tirx.Add) or len(block.reads) < _OPERANDS:
        return False
    return any(isinstance(_strip_cast(term), tvm.tirx.Mul) for term in (total.a, total.b))


def find_output_bits(block: SBlock) -> int:
    """Return the size in bits of an output element of a block."""
    return int(tvm.runtime.DataType(block.writes[0].source.dtype).bits)


def _strip_cast(term: tvm.ir.Expr) -> tvm.ir.Expr:
    """Remove the outermost cast of an expression, if any."""
    return term.value if isinstance(term, tvm.tirx.Cast) else term
