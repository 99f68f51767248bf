"""Variadic operators: Max, Mean, Min, Sum."""

from typing import Final

from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_variadic(site: NodeSite) -> Expr:
    """Convert an operator of any number of inputs by TVM's operator on two at a time."""
    return getattr(onnx_frontend, site.kind)._impl_dynamic(site.bb, list(site.inputs))  # noqa: SLF001


_EXTREME: Final = (
    Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.SELECTS | Trait.EXACT_SPECIALS | Trait.COMPARES
)

OPERATORS: Final = (
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
