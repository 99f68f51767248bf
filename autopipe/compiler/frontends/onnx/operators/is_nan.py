"""IsNaN and IsInf."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


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
    Operator(
        name="IsInf",
        since=20,
        converter=convert_is_inf,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(name="IsNaN", since=20, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
)
