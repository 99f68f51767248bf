"""Squeeze and Unsqueeze: axes of one element."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    advise_on_sizes,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


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
    sizes = site.extents.shape(site.inputs[0], label)
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
)
