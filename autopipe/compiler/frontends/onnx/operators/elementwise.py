"""Elementwise functions: rounding, exponentials, trigonometry, Sign, IsNaN and IsInf."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_sign(site: NodeSite) -> Expr:
    """Convert Sign that propagates NaN."""
    data = site.inputs[0]
    sign = site.convert_by_tvm()
    is_float = str(data.ty.dtype).startswith("float")
    return relax.op.where(relax.op.isnan(data), data, sign) if is_float else sign


def convert_is_inf(site: NodeSite) -> Expr:
    """Convert IsInf of both signs or of one."""
    negative, positive = (site.attr.get(f"detect_{sign}", 1) for sign in ("negative", "positive"))
    if negative and positive:
        return site.convert_by_tvm()
    if not negative and not positive:
        return relax.op.zeros(site.inputs[0].ty.shape, "bool")
    infinity = np.inf if positive else -np.inf
    return relax.op.equal(site.inputs[0], relax.const(infinity, site.inputs[0].ty.dtype))


OPERATORS: Final = (
    Operator(name="Erf", since=13, traits=Trait.FOLDABLE, saturation_slope=1.13),
    Operator(name="Exp", since=13, traits=Trait.FOLDABLE),
    Operator(name="Log", since=13, traits=Trait.FOLDABLE | Trait.SINGULAR_AT_ZERO),
    Operator(name="Acos", since=22),
    Operator(name="Acosh", since=22, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Asin", since=22),
    Operator(name="Asinh", since=22),
    Operator(name="Atan", since=22),
    Operator(name="Atanh", since=22, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Cos", since=22, traits=Trait.FOLDABLE),
    Operator(name="Cosh", since=22),
    Operator(name="Sin", since=22, traits=Trait.FOLDABLE),
    Operator(name="Sinh", since=22),
    Operator(name="Tan", since=22, traits=Trait.FOLDABLE),
    Operator(name="Tanh", since=13, traits=Trait.FOLDABLE, saturation_slope=1.0),
    Operator(
        name="Ceil",
        since=13,
        compute_sizes=arithmetic.round_up,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Floor",
        since=13,
        compute_sizes=arithmetic.round_down,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Round", since=22, traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS
    ),
    Operator(
        name="Sign", since=13, converter=convert_sign, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS
    ),
    Operator(
        name="IsInf",
        since=20,
        converter=convert_is_inf,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(name="IsNaN", since=20, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
)
