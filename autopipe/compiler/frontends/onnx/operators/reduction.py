"""Reductions along axes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import relax, tirx
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Converter,
    Inputs,
    Parameters,
    Size,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

Step = Callable[[BlockBuilder, Expr], Expr]
"""Emits an elementwise operator: (block builder, data)."""
_INF: Final = math.inf
_SUM: Final = relax.op.sum
_LOGARITHMS: Final = ("ReduceLogSum", "ReduceLogSumExp")
"""Reductions that are not defined for integers since opset 28."""


@dataclass(frozen=True, slots=True)
class OnnxReduction:
    """A reduction as three steps: elementwise preparation, combination, elementwise finish."""

    combine: Callable[..., Expr]
    """Relax's operator: (data, axes, keepdims)."""
    identity: float
    """The result over no elements."""
    prepare: Step = lambda _, data: data
    finish: Step = lambda _, data: data
    unreduced: Step = lambda _, data: data
    """The elementwise result if no axis is reduced."""


def _square_elements(bb: BlockBuilder, data: Expr) -> Expr:
    return bb.normalize(relax.op.multiply(data, data))


def _take_absolutes(bb: BlockBuilder, data: Expr) -> Expr:
    return bb.normalize(relax.op.abs(data))


def _take_logarithms(bb: BlockBuilder, data: Expr) -> Expr:
    return bb.normalize(relax.op.log(data))


def _square_root(bb: BlockBuilder, data: Expr) -> Expr:
    """Compute the square root, rounded down for integers."""
    dtype = str(data.ty.dtype)
    if dtype.startswith("float"):
        return bb.normalize(relax.op.sqrt(data))
    root = bb.normalize(relax.op.sqrt(bb.normalize(relax.op.astype(data, "float64"))))
    return bb.normalize(relax.op.astype(root, dtype))


KINDS: Final = {
    "ReduceL1": OnnxReduction(_SUM, 0, prepare=_take_absolutes, unreduced=_take_absolutes),
    "ReduceL2": OnnxReduction(
        _SUM, 0, prepare=_square_elements, finish=_square_root, unreduced=_take_absolutes
    ),
    "ReduceLogSum": OnnxReduction(_SUM, -_INF, finish=_take_logarithms, unreduced=_take_logarithms),
    "ReduceLogSumExp": OnnxReduction(_SUM, -_INF),
    "ReduceMax": OnnxReduction(relax.op.max, -_INF),
    "ReduceMean": OnnxReduction(relax.op.mean, 0),
    "ReduceMin": OnnxReduction(relax.op.min, _INF),
    "ReduceProd": OnnxReduction(relax.op.prod, 1),
    "ReduceSum": OnnxReduction(_SUM, 0),
    "ReduceSumSquare": OnnxReduction(_SUM, 0, prepare=_square_elements, unreduced=_square_elements),
}
"""Reductions by operator. The mean of no elements is undefined in ONNX; onnxruntime has 0."""


def _convert_reduction(
    op: str, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
) -> Expr:
    kind, data = KINDS[op], inputs[0]
    dtype = str(data.ty.dtype)
    if op in _LOGARITHMS and not dtype.startswith("float"):
        raise ModelError(
            f"{op} {operand_facts.quote_node_name(attr)} is of {dtype}: put a Cast to float before"
        )
    axes = _read_axes(inputs, attr, params)
    if not axes and attr.get("noop_with_empty_axes", 0):
        return kind.unreduced(bb, data)
    keepdims = bool(attr.get("keepdims", 1))
    if (empty := _find_empty_shape(data, axes, keepdims=keepdims)) is not None:
        return relax.op.full(empty, _make_number(kind.identity, dtype), dtype)
    if op == "ReduceLogSumExp":
        return _compute_log_sum_exp(bb, data, axes, keepdims=keepdims)
    if dtype == "bool":
        narrow = bb.normalize(relax.op.astype(data, "uint8"))
        return relax.op.astype(bb.normalize(kind.combine(narrow, axes, keepdims)), "bool")
    if op == "ReduceMean" and not dtype.startswith("float"):
        return _compute_integer_mean(bb, data, axes, keepdims=keepdims)
    reduced_data = bb.normalize(kind.combine(kind.prepare(bb, data), axes, keepdims))
    return kind.finish(bb, reduced_data)


def _make_converter(op: str) -> Converter:
    """Return a converter for all opsets: axes are an attribute or an input."""

    def convert(
        _: type, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        return _convert_reduction(op, bb, inputs, attr, params)

    converter_type: Any = type(
        op, (onnx_frontend.OnnxOpConverter,), {"_impl_v1": classmethod(convert)}
    )
    return converter_type


def _read_axes(inputs: Inputs, attr: Attributes, params: Parameters) -> list[int] | None:
    """Return the axes of the attribute or the input, None if there are none."""
    if (axes_input := find_optional_input(inputs, 1)) is None:
        axes: Sequence[int] = attr.get("axes") or ()
    else:
        label = f"what says which axes {operand_facts.quote_node_name(attr)} reduces"
        axes = operand_facts.require_values(axes_input, params, label).reshape(-1).tolist()
    return [int(axis) for axis in axes] or None


def _find_empty_shape(data: Expr, axes: list[int] | None, *, keepdims: bool) -> list[Size] | None:
    """Return the output shape if an axis of size 0 is reduced, else None."""
    sizes = list(getattr(data.ty.shape, "values", None) or ())
    reduced_axes = {axis % len(sizes) for axis in axes or range(len(sizes))} if sizes else set()
    if not any(
        isinstance(sizes[axis], tirx.IntImm) and int(sizes[axis]) == 0 for axis in reduced_axes
    ):
        return None
    kept_sizes = [None if axis in reduced_axes else size for axis, size in enumerate(sizes)]
    return [1 if size is None else size for size in kept_sizes if keepdims or size is not None]


def _make_number(value: float, dtype: str) -> GenericConst:
    """Create a constant; in an integer dtype, infinity becomes the extreme integer."""
    if dtype == "bool":
        return relax.const(value > 0, dtype)
    if math.isinf(value) and not dtype.startswith("float"):
        ends = np.iinfo(dtype)
        return relax.const(ends.max if value > 0 else ends.min, dtype)
    return relax.const(value, dtype)


def _compute_integer_mean(
    bb: BlockBuilder, data: Expr, axes: list[int] | None, *, keepdims: bool
) -> Expr:
    """Compute the mean of integers with int64 sums, rounded towards 0."""
    dtype = str(data.ty.dtype)
    wide = "uint64" if dtype.startswith("u") else "int64"
    sizes = operand_facts.require_shape(data, "what ReduceMean takes integers from")
    count = math.prod(sizes[axis] for axis in axes or range(len(sizes)))
    data = data if dtype == wide else bb.normalize(relax.op.astype(data, wide))
    total = bb.normalize(relax.op.sum(data, axes, keepdims))
    mean = bb.normalize(relax.op.divide(total, relax.const(count, wide)))
    return mean if dtype == wide else relax.op.astype(mean, dtype)


def _compute_log_sum_exp(
    bb: BlockBuilder, data: Expr, axes: list[int] | None, *, keepdims: bool
) -> Expr:
    """Compute the logarithm of the sum of exponentials without overflow.

    If the maximum is infinite, nothing is subtracted: inf - inf is NaN.
    """
    most = bb.normalize(relax.op.max(data, axes, keepdims=True))
    zero = relax.const(0, str(data.ty.dtype))
    most = bb.normalize(relax.op.where(bb.normalize(relax.op.isfinite(most)), most, zero))
    powers = bb.normalize(relax.op.exp(bb.normalize(relax.op.subtract(data, most))))
    total = bb.normalize(relax.op.sum(powers, axes, keepdims=True))
    result = bb.normalize(relax.op.add(bb.normalize(relax.op.log(total)), most))
    return result if keepdims else relax.op.squeeze(result, axes or list(range(data.ty.ndim)))


def _make_reduction(name: str, since: int, traits: Trait, **fields: Any) -> Operator:  # noqa: ANN401
    return Operator(
        name=name, since=since, converter=_make_converter(name),
        empty_result=KINDS[name].identity, traits=traits, **fields
    )  # fmt: skip


_EXTREME: Final = (
    Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS | Trait.LOSES_NAN | Trait.COMPARES
)

OPERATORS: Final = (
    _make_reduction("ReduceL1", 18, Trait.FOLDABLE),
    _make_reduction("ReduceL2", 18, Trait.FOLDABLE),
    _make_reduction("ReduceLogSum", 28, Trait.SINGULAR_AT_ZERO),
    _make_reduction("ReduceLogSumExp", 28, Trait.SINGULAR_AT_ZERO),
    _make_reduction("ReduceMax", 20, _EXTREME | Trait.COMPUTES_SIZES, moments=rules.largest),
    _make_reduction("ReduceMean", 18, Trait.FOLDABLE | Trait.KEEPS_ERROR, moments=rules.averaged),
    _make_reduction("ReduceMin", 20, _EXTREME),
    _make_reduction(
        "ReduceProd",
        18,
        Trait.FOLDABLE | Trait.COMPUTES_SIZES,
        compute_sizes=arithmetic.take_product,
    ),
    _make_reduction("ReduceSum", 13, Trait.FOLDABLE | Trait.COMPUTES_SIZES),
    _make_reduction("ReduceSumSquare", 18, Trait.FOLDABLE),
)
