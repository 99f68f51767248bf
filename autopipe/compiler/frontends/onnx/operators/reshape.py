"""Reshape and Flatten."""

from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.operand_facts import read_node_name
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_vector_array,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node, is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG001  TVM's converters have one signature

_ZERO: Final = relax.const(0, "int64")


def _reshape_to_known_sizes(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Reshape, its open sizes told."""
    if numbers[1] is None:
        return None
    before = extents.shape(inputs[0], describe_node("Reshape", attr))
    wanted = list(numbers[1])
    if not attr.get("allowzero", 0):
        wanted = [before[at] if is_number(size, 0) else size for at, size in enumerate(wanted)]
    rest = [at for at, size in enumerate(wanted) if is_number(size, -1)]
    for at in rest:
        others = [size for size in wanted if not is_number(size, -1)]
        wanted[at] = extents.simple(_find_remaining_size(extents, before, others))
    return relax.op.reshape(inputs[0], to_shape(wanted))


def _find_remaining_size(extents: Extents, before: list[Size], others: list[Size]) -> Size:
    """Return what is left of the elements for one axis beside others."""
    left, over = list(before), list[Size]()
    for size in others:
        same = next((at for at, one in enumerate(left) if extents.equal(one, size)), None)
        if same is None:
            over.append(size)
        else:
            del left[same]
    if not over:
        return multiply_sizes(left)
    return tirx.floordiv(as_int64(multiply_sizes(left)), as_int64(multiply_sizes(over)))


def convert_dynamic_reshape(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Reshape to sizes that are computed, where 0 is the size there was and -1 what is left.

    Sizes that do not hold just these elements end a call with an error.
    """
    if numbers[1] is not None:
        return _reshape_to_known_sizes(extents, bb, inputs, numbers, attr)
    what = describe_node("Reshape", attr)
    data, wanted = inputs[:2]
    before, count = extents.shape(data, what), operand_facts.require_shape(wanted, what)[0]
    zero, one = _ZERO, relax.const(1, "int64")
    if not attr.get("allowzero", 0):
        same = extents.put(bb, as_vector_array((before + [0] * count)[:count]), "int64")
        wanted = bb.emit(relax.op.where(bb.emit(relax.op.equal(wanted, zero)), same, wanted))
    open_ = bb.emit(relax.op.less(wanted, zero))
    others = bb.emit(relax.op.prod(bb.emit(relax.op.where(open_, one, wanted)), keepdims=True))
    others = bb.emit(relax.op.maximum(others, one))
    whole = as_vector_array([extents.simple(multiply_sizes(before))])
    elements = extents.put(bb, whole, "int64")
    rest = bb.emit(relax.op.floor_divide(elements, others))
    wanted = bb.emit(relax.op.where(open_, rest, wanted))
    sizes = extents.read(
        bb, wanted, read_node_name(attr), allowed=_hold_elements(bb, wanted, elements)
    )
    return relax.op.reshape(data, to_shape(sizes))


def _hold_elements(bb: BlockBuilder, sizes: Expr, elements: Expr) -> Expr:
    """Tell whether sizes hold so many elements. Products of floats do not wrap as integers do."""
    sizes, elements = (bb.emit(relax.op.astype(one, "float64")) for one in (sizes, elements))
    return bb.emit(relax.op.equal(bb.emit(relax.op.prod(sizes, keepdims=True)), elements))


OPERATORS: Final = (
    Operator(
        name="Flatten",
        since=25,
        converter=onnx_frontend.Flatten,
        traits=Trait.FOLDABLE
        | Trait.KEEPS_ELEMENTS
        | Trait.KEEPS_WEIGHTS
        | Trait.ENDS_IMAGE
        | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Reshape",
        since=25,
        converter=onnx_frontend.Reshape,
        convert_dynamic=convert_dynamic_reshape,
        compute_sizes=arithmetic.reshape_numbers,
        deciding=(1,),
        traits=Trait.FOLDABLE
        | Trait.KEEPS_ELEMENTS
        | Trait.KEEPS_WEIGHTS
        | Trait.COMPUTES_SIZES
        | Trait.ENDS_IMAGE
        | Trait.EXACT_SPECIALS,
    ),
)
