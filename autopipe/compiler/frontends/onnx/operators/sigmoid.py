"""Sigmoid and its relatives."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.operand_facts import make_scalar_factory
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body


def convert_hard_sigmoid(site: NodeSite) -> Expr:
    """Convert HardSigmoid, clipped to 0 and 1 in the order that propagates NaN."""
    data, number = site.inputs[0], make_scalar_factory(site.inputs[0])
    product = relax.op.multiply(data, number(float(site.attr.get("alpha", 0.2))))
    line = site.bb.normalize(relax.op.add(product, number(float(site.attr.get("beta", 0.5)))))
    low = site.bb.normalize(relax.op.minimum(number(1.0), line))
    return relax.op.maximum(number(0.0), low)


OPERATORS: Final = (
    Operator(
        name="HardSigmoid",
        since=22,
        converter=convert_hard_sigmoid,
        moments=rules.squashed,
        traits=Trait.EXACT_SPECIALS,
    ),
    Operator(name="HardSwish", since=22, moments=rules.rectified),
    Operator(
        name="Sigmoid",
        since=13,
        moments=rules.squashed,
        traits=Trait.FOLDABLE,
        saturation_slope=0.25,
    ),
    Operator(name="SwiGLU", since=28, body=write_onnx_body),
    Operator(name="Swish", since=24, body=write_onnx_body),
)
