"""Convert a node by its operator's rule for dynamic shapes, or by its static converter.

A node is static if its operands have static shapes, and all operands that determine the shape of
the result are constant, whether or not the model has dynamic dimensions.
"""

from dataclasses import replace

from tvm import ir, relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Inputs
from autopipe.compiler.frontends.onnx.conversion.failing_node import describe_shape
from autopipe.compiler.frontends.onnx.conversion.places import require_places
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.empty_reductions import guard_empty_reduction
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    MOST,
    advise_on_sizes,
    as_scalar_array,
    as_vector_array,
    list_dimensions,
    multiply_sizes,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError


def convert_node(operator: Operator, site: NodeSite) -> Expr:
    """Convert a node by the rule of its operator for its shapes."""
    result = _evaluate_numbers(operator, site)
    if result is not None:
        return result
    is_static = _is_static(operator, site.inputs)
    if not is_static:
        site = replace(site, numbers=_read_numbers(operator, site))
    if operator.places is not None:
        require_places(operator.places, site)
    if not is_static and operator.convert_dynamic is not None:
        result = operator.convert_dynamic(site)
    if result is None:
        assert operator.converter is not None  # noqa: S101 - others are not installed
        result = site.convert_by(operator.converter)
    if is_static:
        return result
    result = _check_result(site, result)
    return guard_empty_reduction(site.extents, site.bb, operator, result, site.inputs)


def _is_static(operator: Operator, inputs: Inputs) -> bool:
    """Whether all operands have static shapes, and constants determine that of the result."""
    deciding = (inputs[at] for at in operator.deciding if at < len(inputs))
    return not any(map(_has_dynamic_shape, inputs)) and all(
        value is None or isinstance(value, ir.GenericConst) for value in deciding
    )


def _read_numbers(operator: Operator, site: NodeSite) -> list[Array | None]:
    """Return the elements of operands; a data-dependent operand of sizes is read as new sizes."""
    numbers = [site.extents.of(value, site.params) for value in site.inputs]
    for at in operator.read_sizes:
        value = site.find_input(at)
        if value is not None and numbers[at] is None and not _has_dynamic_shape(value):
            numbers[at] = site.extents.read(site.bb, value, f"{site.name}.{at}")
    return numbers


def _check_result(site: NodeSite, result: Expr) -> Expr:
    """Raise ModelError if operands are consistent only at some dynamic sizes."""
    if not isinstance(result, ir.Expr):
        return result
    result = site.bb.normalize(result)
    if not isinstance(result.ty, relax.TensorType) or result.ty.shape is not None:
        return result
    operands = [value for value in site.inputs if value is not None]
    shapes = [operand_facts.read_sizes(value.ty) for value in operands]
    operand_shapes = [shape for shape in shapes if shape is not None]
    sizes = [size for shape in operand_shapes for size in shape]
    if len(operand_shapes) < len(operands) or not list_dimensions(sizes):
        return result
    shape_texts = ", ".join(map(describe_shape, operand_shapes))
    raise ModelError(
        f"{site.label} of {shape_texts}: what comes out has a size that is not known, "
        f"or fits at some sizes only; {advise_on_sizes(sizes)}, or a multiple"
    )


def _evaluate_numbers(operator: Operator, site: NodeSite) -> Expr | None:
    """Evaluate a node that computes numbers from shapes; None for another node."""
    extents, inputs = site.extents, site.inputs
    if operator.has(Trait.READS_SIZES):
        return _evaluate_shape(site)
    if all(value is None or extents.kept(value) is None for value in inputs):
        return None
    numbers = [extents.of(value, site.params) for value in inputs]
    if any(
        value is not None and number is None for value, number in zip(inputs, numbers, strict=True)
    ):
        return None
    if operator.compute_sizes is None or not numbers or numbers[0] is None:
        return None
    result = operator.compute_sizes(replace(site, numbers=numbers))
    if result is None or result.size > MOST:
        return None
    return extents.put(site.bb, result, operator.size_dtype(site))


def _evaluate_shape(site: NodeSite) -> Expr:
    sizes = site.read_sizes()
    if site.kind == "Shape":
        numbers = as_vector_array(sizes[slice(site.attr.get("start"), site.attr.get("end"))])
    else:
        numbers = as_scalar_array(site.extents.simple(multiply_sizes(sizes)))
    return site.extents.put(site.bb, numbers, "int64")


def _has_dynamic_shape(value: Expr) -> bool:
    """Whether an operand is a tensor without a static shape."""
    kind = getattr(value, "ty", None)
    return isinstance(kind, relax.TensorType) and not operand_facts.is_fixed(kind)
