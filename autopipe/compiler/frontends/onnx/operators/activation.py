"""Activation functions."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.operand_facts import make_scalar_factory
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body

_ELU: Final = {
    "Celu": (1.0, 1.0),
    "Elu": (1.0, 1.0),
    "Selu": (1.67326319218681884765625, 1.05070102214813232421875),
}
"""Default alpha and gamma, by operator."""
_TERMS: Final = {"float16": 4, "float32": 8, "float64": 17}
"""Terms of the series in `_compute_log1p`, by dtype, up to its precision."""


def convert_elu(site: NodeSite) -> Expr:
    """Convert Elu, Celu or Selu of any float.

    ONNX's body of Celu overflows with x / alpha, and returns shape [1] for a scalar.
    """
    data, number = site.inputs[0], make_scalar_factory(site.inputs[0])
    alpha, gamma = (
        float(site.attr.get(name, default))
        for name, default in zip(("alpha", "gamma"), _ELU[site.kind], strict=True)
    )
    exponent = data / number(alpha) if site.kind == "Celu" else data
    below = (relax.op.exp(exponent) - number(1.0)) * number(alpha * gamma)
    above = data if gamma == 1 else data * number(gamma)
    return relax.op.where(data > number(0.0), above, site.bb.normalize(below))


def convert_shrink(site: NodeSite) -> Expr:
    """Convert Shrink; integers are computed in float32, the dtype of its attributes."""
    data, dtype = site.inputs[0], str(site.inputs[0].ty.dtype)
    if not dtype.startswith("float"):
        data = site.bb.normalize(relax.op.astype(data, "float32"))
    number = make_scalar_factory(data)
    bias, edge = float(site.attr.get("bias", 0.0)), float(site.attr.get("lambd", 0.5))
    shrunk = relax.op.where(data < number(-edge), data + number(bias), number(0.0))
    shrunk = relax.op.where(data > number(edge), data - number(bias), site.bb.normalize(shrunk))
    return shrunk if dtype.startswith("float") else relax.op.astype(shrunk, dtype)


def convert_thresholded_relu(site: NodeSite) -> Expr:
    """Convert ThresholdedRelu of any float; a product with 0 would convert infinity to NaN."""
    data, number = site.inputs[0], make_scalar_factory(site.inputs[0])
    return relax.op.where(data > number(float(site.attr.get("alpha", 1.0))), data, number(0.0))


def convert_p_relu(site: NodeSite) -> Expr:
    """Convert PRelu of any dtype, with a slope of any shape that broadcasts to that of the data."""
    data, slope = site.inputs
    return relax.op.where(data < relax.const(0, str(data.ty.dtype)), data * slope, data)


def convert_leaky_relu(site: NodeSite) -> Expr:
    """Convert LeakyRelu that returns NaN for -inf with slope 0, where TVM's operator returns 0."""
    if site.attr.get("alpha") != 0:
        return site.convert_by_tvm()
    data = site.inputs[0]
    return site.convert_by(convert_p_relu, [data, relax.const(0, str(data.ty.dtype))])


def convert_hard_sigmoid(site: NodeSite) -> Expr:
    """Convert HardSigmoid, clipped to 0 and 1 in the order that propagates NaN."""
    data, number = site.inputs[0], make_scalar_factory(site.inputs[0])
    product = data * number(float(site.attr.get("alpha", 0.2)))
    line = product + number(float(site.attr.get("beta", 0.5)))
    return relax.op.maximum(number(0.0), relax.op.minimum(number(1.0), line))


def convert_softplus(site: NodeSite) -> Expr:
    """Convert Softplus with full precision for small results."""
    data = site.inputs[0]
    small = site.bb.normalize(relax.op.exp(-relax.op.abs(data)))
    positive = relax.op.maximum(data, make_scalar_factory(data)(0.0))
    return positive + _compute_log1p(site.bb, small)


def convert_mish(site: NodeSite) -> Expr:
    """Convert Mish with this Softplus."""
    return site.inputs[0] * relax.op.tanh(convert_softplus(site))


def _compute_log1p(bb: BlockBuilder, data: Expr) -> Expr:
    """Return log(1 + x) for x from 0 to 1 by the series of twice the artanh of x / (2 + x).

    The sum 1 + x would lose the low bits of a small x.
    """
    number = make_scalar_factory(data)
    ratio = bb.normalize(data / (data + number(2.0)))
    square = bb.normalize(ratio * ratio)
    terms = _TERMS[str(data.ty.dtype)]
    total: Expr = number(2.0 / (2 * terms - 1))
    for term in reversed(range(terms - 1)):
        total = total * square + number(2.0 / (2 * term + 1))
    return bb.normalize(ratio * total)


OPERATORS: Final = (
    Operator(name="Celu", since=28, converter=convert_elu),
    Operator(name="Elu", since=22, converter=convert_elu, moments=rules.rectified),
    Operator(name="Selu", since=22, converter=convert_elu, moments=rules.rectified),
    Operator(name="BiasGelu", domain=MICROSOFT, inputs=("A", "B")),
    Operator(name="FastGelu", domain=MICROSOFT, inputs=("X",)),
    Operator(name="Gelu", since=20, moments=rules.rectified),
    Operator(name="Gelu", domain=MICROSOFT, inputs=("X",)),
    Operator(name="LeakyRelu", since=16, converter=convert_leaky_relu, moments=rules.rectified),
    Operator(name="PRelu", since=16, converter=convert_p_relu, moments=rules.rectified),
    Operator(
        name="Relu",
        since=14,
        moments=rules.rectified,
        traits=Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS | Trait.COMPARES,
    ),
    Operator(name="Shrink", since=9, converter=convert_shrink),
    Operator(
        name="ThresholdedRelu",
        since=22,
        converter=convert_thresholded_relu,
        traits=Trait.EXACT_SPECIALS,
    ),
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
    Operator(name="Mish", since=22, converter=convert_mish, moments=rules.rectified),
    Operator(name="Softplus", since=22, converter=convert_softplus, moments=rules.rectified),
    Operator(name="Softsign", since=22, saturation_slope=1.0),
)
