"""Converters of nodes with dynamic shapes, which delegate static nodes to the static converters.

A node is static if its operands have static shapes, and all operands that determine the shape of
the result are constant, whether or not the model has dynamic dimensions.
"""

from collections.abc import Sequence

from tvm import ir, relax
from tvm.ir import Expr
from tvm.relax.analysis import tir_vars_in_type

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Convert,
    Converter,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.conversion.failing_node import describe_shape
from autopipe.compiler.frontends.onnx.conversion.place_limits import OUTSIDE, read_shapes
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic, decided_conditions
from autopipe.compiler.frontends.onnx.dynamic_sizes.empty_reductions import guard_empty_reduction
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    advise_on_sizes,
    as_scalar_array,
    as_vector_array,
    list_dimensions,
    multiply_sizes,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: E501


class DynamicConverter:
    """A converter that delegates static nodes to the static converter of their operator."""

    def __init__(self, operator: Operator, static: Converter, extents: Extents) -> None:
        self._operator, self._static, self._extents = operator, static, extents

    def get_converter(self, opset: int) -> Convert:
        """Return the conversion function, as TVM's importer requests it."""
        convert_static = self._static.get_converter(opset)

        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            result = self._evaluate_numbers(bb, inputs, attr, params)
            if result is None and self._operator.name == "If":
                condition = self._extents.of(inputs[0], params)
                result = decided_conditions.convert_taken_branch(
                    bb, condition, attr, params[0], opset
                )
            if result is not None:
                return result
            if self._is_static(inputs):
                return convert_static(bb, inputs, attr, params)
            result = self._apply_rule(bb, inputs, attr, params)
            if result is None:
                result = convert_static(bb, inputs, attr, params)
            result = self._check_result(bb, result, inputs, attr)
            return guard_empty_reduction(self._extents, bb, self._operator, result, inputs)

        return convert

    def _is_static(self, inputs: Inputs) -> bool:
        """Whether all operands have static shapes, and constants determine that of the result."""
        deciding = (inputs[at] for at in self._operator.deciding if at < len(inputs))
        return not any(map(_has_dynamic_shape, inputs)) and all(
            value is None or isinstance(value, ir.GenericConst) for value in deciding
        )

    def _apply_rule(
        self, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr | None:
        """Convert a node by the rule for dynamic shapes; None leaves it to the static converter."""
        numbers = [self._extents.of(value, params) for value in inputs]
        numbers = self._read_sizes(bb, inputs, numbers, attr)
        self._require_places(bb, inputs, attr)
        rule = self._operator.convert_dynamic
        return None if rule is None else rule(self._extents, bb, inputs, numbers, attr)

    def _read_sizes(
        self, bb: BlockBuilder, inputs: Inputs, numbers: Sequence[Array | None], attr: Attributes
    ) -> list[Array | None]:
        """Return the elements of operands; a data-dependent operand of sizes is read as new sizes."""
        sizes = list(numbers)
        for at in self._operator.read_sizes:
            value = find_optional_input(inputs, at)
            if value is not None and sizes[at] is None and not _has_dynamic_shape(value):
                node = operand_facts.read_node_name(attr)
                sizes[at] = self._extents.read(bb, value, f"{node}.{at}")
        return sizes

    def _require_places(self, bb: BlockBuilder, inputs: Inputs, attr: Attributes) -> None:
        """Emit a run-time error if an indexed axis is empty."""
        rule = self._operator.places
        shapes = None if rule is None else read_shapes(inputs)
        if rule is None or shapes is None:
            return
        sizes = [list(map(self._extents.simple, shape)) for shape in shapes]
        self._extents.require(
            bb,
            rule.list_limits(sizes, attr),
            f"{self._operator.name} {operand_facts.quote_node_name(attr)} {OUTSIDE}",
            rule.list_counts(sizes),
        )

    def _check_result(
        self, bb: BlockBuilder, result: Expr, inputs: Inputs, attr: Attributes
    ) -> Expr:
        """Raise ModelError if operands are consistent only at some dynamic sizes."""
        if not isinstance(result, ir.Expr):
            return result
        result = bb.normalize(result)
        if not isinstance(result.ty, relax.TensorType) or result.ty.shape is not None:
            return result
        operand_shapes = [
            list(value.ty.shape.values)
            for value in inputs
            if value is not None
            and isinstance(value.ty, relax.TensorType)
            and isinstance(value.ty.shape, relax.ShapeExpr)
        ]
        sizes = [size for shape in operand_shapes for size in shape]
        if len(operand_shapes) < sum(value is not None for value in inputs) or not list_dimensions(
            sizes
        ):
            return result
        shape_texts = ", ".join(map(describe_shape, operand_shapes))
        raise ModelError(
            f"{self._operator.name} {operand_facts.quote_node_name(attr)} of {shape_texts}: what comes out has a size that is not known, "
            f"or fits at some sizes only; {advise_on_sizes(sizes)}, or a multiple"
        )

    def _evaluate_numbers(
        self, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr | None:
        """Evaluate a node that computes numbers from shapes; None for another node."""
        if self._operator.has(Trait.READS_SIZES):
            return self._evaluate_shape(bb, inputs[0], attr)
        if all(value is None or self._extents.kept(value) is None for value in inputs):
            return None
        numbers = [self._extents.of(value, params) for value in inputs]
        if any(
            value is not None and number is None
            for value, number in zip(inputs, numbers, strict=True)
        ):
            return None
        dtypes = ["" if value is None else str(value.ty.dtype) for value in inputs]
        evaluation = arithmetic.evaluate_node(self._extents, self._operator, numbers, dtypes, attr)
        return None if evaluation is None else self._extents.put(bb, *evaluation)

    def _evaluate_shape(self, bb: BlockBuilder, data: Expr, attr: Attributes) -> Expr:
        sizes = self._extents.shape(
            data, f"{self._operator.name} {operand_facts.quote_node_name(attr)}"
        )
        if self._operator.name == "Shape":
            numbers = as_vector_array(sizes[slice(attr.get("start"), attr.get("end"))])
        else:
            numbers = as_scalar_array(self._extents.simple(multiply_sizes(sizes)))
        return self._extents.put(bb, numbers, "int64")


def _has_dynamic_shape(value: Expr) -> bool:
    """Whether an operand is a tensor without a static shape."""
    kind = getattr(value, "ty", None)
    if not isinstance(kind, relax.TensorType):
        return False
    return not isinstance(kind.shape, relax.ShapeExpr) or bool(tir_vars_in_type(kind))
