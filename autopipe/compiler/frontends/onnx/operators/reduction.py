"""Reductions, and prefix sums and products, along axes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

Step = Callable[[Expr], Expr]
"""Applies an elementwise operator."""
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
    prepare: Step = lambda data: data
    finish: Step = lambda data: data
    unreduced: Step = lambda data: data
    """The elementwise result if no axis is reduced."""


def _square_elements(data: Expr) -> Expr:
    return data * data


def _square_root(data: Expr) -> Expr:
    """Compute the square root, rounded down for integers."""
    dtype = str(data.ty.dtype)
    if dtype.startswith("float"):
        return relax.op.sqrt(data)
    return relax.op.astype(relax.op.sqrt(relax.op.astype(data, "float64")), dtype)


KINDS: Final = {
    "ReduceL1": OnnxReduction(_SUM, 0, prepare=relax.op.abs, unreduced=relax.op.abs),
    "ReduceL2": OnnxReduction(
        _SUM, 0, prepare=_square_elements, finish=_square_root, unreduced=relax.op.abs
    ),
    "ReduceLogSum": OnnxReduction(_SUM, -_INF, finish=relax.op.log, unreduced=relax.op.log),
    "ReduceLogSumExp": OnnxReduction(_SUM, -_INF),
    "ReduceMax": OnnxReduction(relax.op.max, -_INF),
    "ReduceMean": OnnxReduction(relax.op.mean, 0),
    "ReduceMin": OnnxReduction(relax.op.min, _INF),
    "ReduceProd": OnnxReduction(relax.op.prod, 1),
    "ReduceSum": OnnxReduction(_SUM, 0),
    "ReduceSumSquare": OnnxReduction(_SUM, 0, prepare=_square_elements, unreduced=_square_elements),
}
"""Reductions by operator. The mean of no elements is undefined in ONNX; onnxruntime has 0."""


def convert_reduction(site: NodeSite) -> Expr:
    """Convert a reduction of any opset: axes are an attribute or an input."""
    op, bb, attr, data = site.kind, site.bb, site.attr, site.inputs[0]
    kind, dtype = KINDS[op], str(data.ty.dtype)
    if op in _LOGARITHMS and not dtype.startswith("float"):
        raise ModelError(f"{site.label} is of {dtype}: put a Cast to float before")
    axes = _read_axes(site)
    if not axes and attr.get("noop_with_empty_axes", 0):
        return kind.unreduced(data)
    keepdims = bool(attr.get("keepdims", 1))
    if (empty := _find_empty_shape(data, axes, keepdims=keepdims)) is not None:
        return relax.op.full(empty, _make_number(kind.identity, dtype), dtype)
    if op == "ReduceLogSumExp":
        return _compute_log_sum_exp(bb, data, axes, keepdims=keepdims)
    if dtype == "bool":
        narrow = relax.op.astype(data, "uint8")
        return relax.op.astype(kind.combine(narrow, axes, keepdims), "bool")
    if op == "ReduceMean" and not dtype.startswith("float"):
        return _compute_integer_mean(data, axes, keepdims=keepdims)
    return kind.finish(bb.normalize(kind.combine(kind.prepare(data), axes, keepdims)))


def _read_axes(site: NodeSite) -> list[int] | None:
    """Return the axes of the attribute or the input, None if there are none."""
    if site.find_input(1) is None:
        axes: Sequence[int] = site.attr.get("axes") or ()
    else:
        label = f"what says which axes {site.name!r} reduces"
        axes = site.require_values(1, label).reshape(-1).tolist()
    return [int(axis) for axis in axes] or None


def _find_empty_shape(data: Expr, axes: list[int] | None, *, keepdims: bool) -> list[Size] | None:
    """Return the output shape if an axis of size 0 is reduced, else None."""
    sizes = operand_facts.read_sizes(data.ty) or []
    reduced_axes = {axis % len(sizes) for axis in axes or range(len(sizes))} if sizes else set()
    if not any(isinstance(sizes[axis], int) and sizes[axis] == 0 for axis in reduced_axes):
        return None
    kept_sizes = [1 if axis in reduced_axes else size for axis, size in enumerate(sizes)]
    return [size for axis, size in enumerate(kept_sizes) if keepdims or axis not in reduced_axes]


def _make_number(value: float, dtype: str) -> GenericConst:
    """Create a constant; in an integer dtype, infinity becomes the extreme integer."""
    if dtype == "bool":
        return relax.const(value > 0, dtype)
    if math.isinf(value) and not dtype.startswith("float"):
        ends = np.iinfo(dtype)
        return relax.const(ends.max if value > 0 else ends.min, dtype)
    return relax.const(value, dtype)


def _compute_integer_mean(data: Expr, axes: list[int] | None, *, keepdims: bool) -> Expr:
    """Compute the mean of integers with int64 sums, rounded towards 0."""
    dtype = str(data.ty.dtype)
    wide = "uint64" if dtype.startswith("u") else "int64"
    sizes = operand_facts.require_shape(data, "what ReduceMean takes integers from")
    count = math.prod(sizes[axis] for axis in axes or range(len(sizes)))
    data = data if dtype == wide else relax.op.astype(data, wide)
    mean = relax.op.divide(relax.op.sum(data, axes, keepdims), relax.const(count, wide))
    return mean if dtype == wide else relax.op.astype(mean, dtype)


def _compute_log_sum_exp(
    bb: BlockBuilder, data: Expr, axes: list[int] | None, *, keepdims: bool
) -> Expr:
    """Compute the logarithm of the sum of exponentials without overflow.

    If the maximum is infinite, nothing is subtracted: inf - inf is NaN.
    """
    most = bb.normalize(relax.op.max(data, axes, keepdims=True))
    zero = relax.const(0, str(data.ty.dtype))
    most = bb.normalize(relax.op.where(relax.op.isfinite(most), most, zero))
    total = relax.op.sum(relax.op.exp(data - most), axes, keepdims=True)
    result = relax.op.log(total) + most
    return result if keepdims else relax.op.squeeze(result, axes or list(range(data.ty.ndim)))


def convert_cum_prod(site: NodeSite) -> Expr:
    """Convert CumProd: cumulative products along an axis."""
    data, is_exclusive = site.inputs[0], bool(site.attr.get("exclusive", 0))
    axis = int(site.require_values(1, f"axis of {site.name!r}").item())
    if not site.attr.get("reverse", 0):
        return relax.op.cumprod(data, axis, exclusive=is_exclusive)
    product = relax.op.cumprod(relax.op.flip(data, axis), axis, exclusive=is_exclusive)
    return relax.op.flip(product, axis)


def _make_reduction(name: str, since: int, traits: Trait, **fields: Any) -> Operator:  # noqa: ANN401
    return Operator(
        name=name, since=since, converter=convert_reduction,
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
    Operator(name="ArgMax", since=13, empty_result=0, traits=Trait.FOLDABLE),
    Operator(name="ArgMin", since=13, empty_result=0, traits=Trait.FOLDABLE),
    Operator(name="CumProd", since=26, converter=convert_cum_prod),
    Operator(name="CumSum", since=14, traits=Trait.FOLDABLE),
)
