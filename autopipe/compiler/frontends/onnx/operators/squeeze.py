"""Squeeze and Unsqueeze: axes of one element."""

from typing import Any, Final

from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Converter,
    Inputs,
    Numbers,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    advise_on_sizes,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

# ruff: noqa: ARG001, SLF001  TVM's converters have one signature


def _accept_one_axis(converter: type[onnx_frontend.OnnxOpConverter]) -> Converter:
    """Return TVM's converter that accepts a scalar axis as well, as onnxruntime does."""

    def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
        axes = onnx_frontend.get_constant(find_optional_input(inputs, 1), params)
        if isinstance(axes, GenericConst) and axes.value.numpy().ndim == 0:
            operands = [inputs[0], operand_facts.make_constant(axes.value.numpy().reshape(1))]
            inputs = onnx_frontend.onnx_input(operands)
        return converter._impl_v13(bb, inputs, attr, params)

    converter_type: Any = type(
        converter.__name__, (converter,), {"_impl_v13": staticmethod(convert)}
    )
    return converter_type


def convert_dynamic_squeeze(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Squeeze of dynamic axes that are always 1: `(samples - 192) // 512 + 1`."""
    label = describe_node("Squeeze", attr)
    if find_optional_input(inputs, 1) is not None and numbers[1] is None:
        return None
    sizes = extents.shape(inputs[0], label)
    named_axes = (
        list(numbers[1]) if len(numbers) > 1 and numbers[1] is not None else attr.get("axes")
    )
    axes = (
        range(len(sizes)) if named_axes is None else [int(axis) % len(sizes) for axis in named_axes]
    )
    unit_axes = {axis: extents.truth(sizes[axis] == 1) for axis in axes}
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
        inputs[0], to_shape([size for axis, size in enumerate(sizes) if not unit_axes.get(axis)])
    )


_TRAITS: Final = (
    Trait.FOLDABLE | Trait.KEEPS_ELEMENTS | Trait.KEEPS_WEIGHTS | Trait.COMPUTES_SIZES
    | Trait.EXACT_SPECIALS
)  # fmt: skip

OPERATORS: Final = (
    Operator(
        name="Squeeze",
        since=25,
        converter=_accept_one_axis(onnx_frontend.Squeeze),
        convert_dynamic=convert_dynamic_squeeze,
        compute_sizes=arithmetic.squeeze_numbers,
        traits=_TRAITS,
    ),
    Operator(
        name="Unsqueeze",
        since=25,
        converter=_accept_one_axis(onnx_frontend.Unsqueeze),
        compute_sizes=arithmetic.unsqueeze_numbers,
        traits=_TRAITS,
    ),
)
