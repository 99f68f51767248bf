"""Arithmetic of one, two or any number of tensors."""

from functools import reduce
from operator import mul
from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

_LARGEST_CHAIN: Final = 8
"""Maximum exponent of integer powers; larger ones are computed in float64."""


def convert_div(site: NodeSite) -> Expr:
    """Convert Div, of integers as `compiler/arithmetic/integer_division.py` defines it."""
    if _is_integer_constant(site.inputs[1]) and not site.inputs[1].value.numpy().all():
        return relax.op.divide(*site.inputs)
    return site.convert_by_tvm()


def convert_mod(site: NodeSite) -> Expr:
    """Convert Mod with the sign of the divisor, or with that of the dividend."""
    inputs = site.inputs
    if _is_integer_constant(inputs[1]) and not inputs[1].value.numpy().all():
        divide = relax.op.mod if site.attr.get("fmod", 0) else relax.op.floor_mod
        return divide(*inputs)
    if str(inputs[0].ty.dtype).startswith("float") and not site.attr.get("fmod", 0):
        remainder = site.bb.normalize(relax.op.mod(*inputs))
        zero = relax.const(0, inputs[0].ty.dtype)
        signs_differ = relax.op.logical_xor(remainder < zero, inputs[1] < zero)
        signs_differ = relax.op.logical_and(signs_differ, relax.op.not_equal(remainder, zero))
        return relax.op.where(signs_differ, remainder + inputs[1], remainder)
    return site.convert_by_tvm()


def _is_integer_constant(value: Expr) -> bool:
    return isinstance(value, GenericConst) and value.value.numpy().dtype.kind in "iu"


def convert_pow(site: NodeSite) -> Expr:
    """Convert Pow of any two dtypes: the result has that of the base."""
    bb = site.bb
    base, exponent = site.inputs
    of_base, of_exponent = (str(value.ty.dtype) for value in site.inputs)
    if of_base.startswith("float"):
        if of_base == of_exponent:
            return site.convert_by_tvm()
        exponent = bb.normalize(relax.op.astype(exponent, of_base))
        return site.convert_by_tvm(inputs=[base, exponent])
    if (times := _read_exponent(exponent)) is not None:
        ones = list(range(exponent.ty.ndim - base.ty.ndim))  # axes that only the exponent has
        base = bb.normalize(relax.op.expand_dims(base, ones)) if ones else base
        return reduce(mul, [base] * times)
    wide = [relax.op.astype(value, "float64") for value in site.inputs]
    return relax.op.astype(relax.op.power(*wide), of_base)


def _read_exponent(exponent: Expr) -> int | None:
    """Return a small constant scalar exponent, None for others."""
    if not isinstance(exponent, GenericConst):
        return None
    values = exponent.value.numpy()
    small = values.size == 1 and 1 <= values.item() <= _LARGEST_CHAIN
    return int(values.item()) if small and values.item() == int(values.item()) else None


def convert_variadic(site: NodeSite) -> Expr:
    """Convert an operator of any number of inputs by TVM's operator on two at a time."""
    return getattr(onnx_frontend, site.kind)._impl_dynamic(site.bb, list(site.inputs))  # noqa: SLF001


_EXTREME: Final = (
    Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.SELECTS | Trait.EXACT_SPECIALS | Trait.COMPARES
)


OPERATORS: Final = (
    Operator(
        name="Abs", since=13, traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS
    ),
    Operator(
        name="Add",
        since=14,
        compute_sizes=arithmetic.add_numbers,
        weights={0: "shift", 1: "shift"},
        moments=rules.total,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.ADDS | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Mul",
        since=14,
        compute_sizes=arithmetic.multiply_numbers,
        weights={0: "scale", 1: "scale"},
        moments=rules.product,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Neg",
        since=13,
        compute_sizes=arithmetic.negate_numbers,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS,
    ),
    Operator(name="Reciprocal", since=13, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
    Operator(
        name="Sqrt", since=13, moments=rules.rooted, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS
    ),
    Operator(
        name="Sub",
        since=14,
        compute_sizes=arithmetic.subtract_numbers,
        weights={1: "shift"},
        moments=rules.difference,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.ADDS | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Div",
        since=14,
        converter=convert_div,
        compute_sizes=arithmetic.divide_numbers,
        moments=rules.quotient,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Mod",
        since=28,
        converter=convert_mod,
        compute_sizes=arithmetic.take_remainder,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Pow",
        since=15,
        converter=convert_pow,
        moments=rules.squared,
        traits=Trait.FOLDABLE | Trait.SINGULAR_AT_ZERO,
    ),
    Operator(
        name="Max",
        since=13,
        converter=convert_variadic,
        compute_sizes=arithmetic.take_maximum,
        traits=_EXTREME,
    ),
    Operator(name="Mean", since=13, converter=convert_variadic, traits=Trait.FOLDABLE),
    Operator(
        name="Min",
        since=13,
        converter=convert_variadic,
        compute_sizes=arithmetic.take_minimum,
        traits=_EXTREME,
    ),
    Operator(
        name="Sum",
        since=13,
        converter=convert_variadic,
        moments=rules.total,
        traits=Trait.FOLDABLE | Trait.ADDS | Trait.EXACT_SPECIALS,
    ),
)
