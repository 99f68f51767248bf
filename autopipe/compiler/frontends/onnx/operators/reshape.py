"""Shapes: operators that change or return them, and permutations of axes."""

from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    advise_on_sizes,
    as_int64,
    as_vector_array,
    is_open,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

_ZERO: Final = relax.const(0, "int64")


def _reshape_to_known_sizes(site: NodeSite) -> Expr | None:
    """Convert Reshape with sizes that are known as expressions of dynamic dimensions."""
    extents = site.extents
    if site.numbers[1] is None:
        return None
    before = site.read_sizes()
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
        is_copied = relax.op.equal(target_sizes, zero)
        target_sizes = bb.emit(relax.op.where(is_copied, input_sizes, target_sizes))
    is_inferred = bb.emit(target_sizes < zero)
    factors = relax.op.where(is_inferred, unit, target_sizes)
    known_product = bb.emit(relax.op.maximum(relax.op.prod(factors, keepdims=True), unit))
    element_count = as_vector_array([extents.simple(multiply_sizes(before))])
    elements = extents.put(bb, element_count, "int64")
    remainder = relax.op.floor_divide(elements, known_product)
    target_sizes = bb.emit(relax.op.where(is_inferred, remainder, target_sizes))
    is_allowed = _hold_elements(bb, target_sizes, elements)
    sizes = extents.read(bb, target_sizes, site.name, is_allowed=is_allowed)
    return relax.op.reshape(data, to_shape(sizes))


def _hold_elements(bb: BlockBuilder, sizes: Expr, elements: Expr) -> Expr:
    """Emit the test that sizes hold all elements, in floats, which do not wrap like integers."""
    sizes, elements = (bb.emit(relax.op.astype(one, "float64")) for one in (sizes, elements))
    return bb.emit(relax.op.equal(relax.op.prod(sizes, keepdims=True), elements))


def convert_squeeze(site: NodeSite) -> Expr:
    """Convert Squeeze or Unsqueeze, also along a scalar axis, as onnxruntime does."""
    axes = onnx_frontend.get_constant(site.find_input(1), site.params)
    if not isinstance(axes, GenericConst) or axes.value.numpy().ndim:
        return site.convert_by_tvm()
    vector = operand_facts.make_constant(axes.value.numpy().reshape(1))
    return site.convert_by_tvm([site.inputs[0], vector])


def convert_dynamic_squeeze(site: NodeSite) -> Expr | None:
    """Convert Squeeze of dynamic axes that are always 1: `(samples - 192) // 512 + 1`."""
    label = site.label
    if site.find_input(1) is not None and site.numbers[1] is None:
        return None
    sizes = site.read_sizes()
    named_axes = (
        list(site.numbers[1])
        if len(site.numbers) > 1 and site.numbers[1] is not None
        else site.attr.get("axes")
    )
    axes = (
        range(len(sizes)) if named_axes is None else [int(axis) % len(sizes) for axis in named_axes]
    )
    unit_axes = {axis: site.extents.truth(sizes[axis] == 1) for axis in axes}
    unclear = [sizes[axis] for axis, is_one in unit_axes.items() if is_one is None]
    unclear += [
        sizes[axis]
        for axis, is_one in unit_axes.items()
        if named_axes is not None and is_one is False
    ]
    if is_open(unclear):
        raise ModelError(
            f"{label} takes an axis away that has one element at some sizes only, and {unclear[0]} "
            f"at others; {advise_on_sizes(unclear)}, or a range in model.dimensions where it has "
            "one"
        )
    return relax.op.reshape(
        site.inputs[0],
        to_shape([size for axis, size in enumerate(sizes) if not unit_axes.get(axis)]),
    )


_TRAITS: Final = (
    Trait.FOLDABLE | Trait.KEEPS_ELEMENTS | Trait.KEEPS_WEIGHTS | Trait.COMPUTES_SIZES
    | Trait.EXACT_SPECIALS
)  # fmt: skip


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
    Operator(
        name="Squeeze",
        since=25,
        converter=convert_squeeze,
        convert_dynamic=convert_dynamic_squeeze,
        compute_sizes=arithmetic.move_numbers,
        traits=_TRAITS,
    ),
    Operator(
        name="Unsqueeze",
        since=25,
        converter=convert_squeeze,
        compute_sizes=arithmetic.move_numbers,
        traits=_TRAITS,
    ),
    Operator(
        name="Transpose",
        since=25,
        traits=Trait.FOLDABLE | Trait.KEEPS_ELEMENTS | Trait.KEEPS_WEIGHTS | Trait.EXACT_SPECIALS,
    ),
    Operator(name="Shape", since=25, traits=Trait.FOLDABLE | Trait.READS_SIZES),
    Operator(name="Size", since=25, traits=Trait.FOLDABLE | Trait.READS_SIZES),
)
