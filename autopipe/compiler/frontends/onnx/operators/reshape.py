"""Reshape and Flatten."""

from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_vector_array,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

_ZERO: Final = relax.const(0, "int64")


def _reshape_to_known_sizes(site: NodeSite) -> Expr | None:
    """Convert Reshape with sizes that are known as expressions of dynamic dimensions."""
    extents = site.extents
    if site.numbers[1] is None:
        return None
    before = extents.shape(site.inputs[0], site.label)
    target_sizes = list(site.numbers[1])
    if not site.attr.get("allowzero", 0):
        target_sizes = [
            before[at] if is_number(size, 0) else size for at, size in enumerate(target_sizes)
        ]
    open_places = [at for at, size in enumerate(target_sizes) if is_number(size, -1)]
    for at in open_places:
        known_sizes = [size for size in target_sizes if not is_number(size, -1)]
        target_sizes[at] = extents.simple(_find_remaining_size(extents, before, known_sizes))
    return relax.op.reshape(site.inputs[0], to_shape(target_sizes))


def _find_remaining_size(extents: Extents, before: list[Size], known_sizes: list[Size]) -> Size:
    """Return the size of the -1 axis: the number of elements divided by the other sizes."""
    remaining_sizes, divisors = list(before), list[Size]()
    for size in known_sizes:
        match = next(
            (at for at, one in enumerate(remaining_sizes) if extents.equal(one, size)), None
        )
        if match is None:
            divisors.append(size)
        else:
            del remaining_sizes[match]
    if not divisors:
        return multiply_sizes(remaining_sizes)
    return tirx.floordiv(
        as_int64(multiply_sizes(remaining_sizes)), as_int64(multiply_sizes(divisors))
    )


def convert_dynamic_reshape(site: NodeSite) -> Expr | None:
    """Convert Reshape to computed sizes; 0 copies the input's size, -1 is inferred.

    Sizes with another product than the number of elements are an error at run time.
    """
    extents, bb = site.extents, site.bb
    if site.numbers[1] is not None:
        return _reshape_to_known_sizes(site)
    label = site.label
    data, target_sizes = site.inputs[:2]
    before, count = extents.shape(data, label), operand_facts.require_shape(target_sizes, label)[0]
    zero, unit = _ZERO, relax.const(1, "int64")
    if not site.attr.get("allowzero", 0):
        input_sizes = extents.put(bb, as_vector_array((before + [0] * count)[:count]), "int64")
        target_sizes = bb.emit(
            relax.op.where(bb.emit(relax.op.equal(target_sizes, zero)), input_sizes, target_sizes)
        )
    is_inferred = bb.emit(relax.op.less(target_sizes, zero))
    known_product = bb.emit(
        relax.op.prod(bb.emit(relax.op.where(is_inferred, unit, target_sizes)), keepdims=True)
    )
    known_product = bb.emit(relax.op.maximum(known_product, unit))
    element_count = as_vector_array([extents.simple(multiply_sizes(before))])
    elements = extents.put(bb, element_count, "int64")
    remainder = bb.emit(relax.op.floor_divide(elements, known_product))
    target_sizes = bb.emit(relax.op.where(is_inferred, remainder, target_sizes))
    sizes = extents.read(
        bb,
        target_sizes,
        site.name,
        is_allowed=_hold_elements(bb, target_sizes, elements),
    )
    return relax.op.reshape(data, to_shape(sizes))


def _hold_elements(bb: BlockBuilder, sizes: Expr, elements: Expr) -> Expr:
    """Emit the test that sizes hold all elements, in floats, which do not wrap like integers."""
    sizes, elements = (bb.emit(relax.op.astype(one, "float64")) for one in (sizes, elements))
    return bb.emit(relax.op.equal(bb.emit(relax.op.prod(sizes, keepdims=True)), elements))


OPERATORS: Final = (
    Operator(
        name="Flatten",
        since=25,
        traits=Trait.FOLDABLE
        | Trait.KEEPS_ELEMENTS
        | Trait.KEEPS_WEIGHTS
        | Trait.ENDS_IMAGE
        | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Reshape",
        since=25,
        convert_dynamic=convert_dynamic_reshape,
        compute_sizes=arithmetic.move_numbers,
        deciding=(1,),
        traits=Trait.FOLDABLE
        | Trait.KEEPS_ELEMENTS
        | Trait.KEEPS_WEIGHTS
        | Trait.COMPUTES_SIZES
        | Trait.ENDS_IMAGE
        | Trait.EXACT_SPECIALS,
    ),
)
