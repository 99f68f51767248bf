"""Div and Mod of floats and integers."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


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
        signs = [relax.op.less(value, zero) for value in (remainder, inputs[1])]
        signs_differ = relax.op.logical_xor(*signs)
        signs_differ = relax.op.logical_and(signs_differ, relax.op.not_equal(remainder, zero))
        return relax.op.where(signs_differ, relax.op.add(remainder, inputs[1]), remainder)
    return site.convert_by_tvm()


def _is_integer_constant(value: Expr) -> bool:
    return isinstance(value, GenericConst) and value.value.numpy().dtype.kind in "iu"


OPERATORS: Final = (
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
)
