"""Relu and its relatives."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.operand_facts import make_scalar_factory
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_shrink(site: NodeSite) -> Expr:
    """Convert Shrink; integers are computed in float32, the dtype of its attributes."""
    bb = site.bb
    dtype = str(site.inputs[0].ty.dtype)
    data = site.inputs[0]
    if not dtype.startswith("float"):
        data = bb.normalize(relax.op.astype(data, "float32"))
    number = make_scalar_factory(data)
    bias, edge = float(site.attr.get("bias", 0.0)), float(site.attr.get("lambd", 0.5))
    minus_bias = bb.normalize(relax.op.subtract(data, number(bias)))
    plus_bias = bb.normalize(relax.op.add(data, number(bias)))
    above, below = (
        bb.normalize(compare(data, number(bound)))
        for compare, bound in ((relax.op.greater, edge), (relax.op.less, -edge))
    )
    shrunk = bb.normalize(relax.op.where(below, plus_bias, number(0.0)))
    shrunk = bb.normalize(relax.op.where(above, minus_bias, shrunk))
    return shrunk if dtype.startswith("float") else relax.op.astype(shrunk, dtype)


def convert_thresholded_relu(site: NodeSite) -> Expr:
    """Convert ThresholdedRelu of any float; a product with 0 would convert infinity to NaN."""
    data, number = site.inputs[0], make_scalar_factory(site.inputs[0])
    above = site.bb.normalize(relax.op.greater(data, number(float(site.attr.get("alpha", 1.0)))))
    return relax.op.where(above, data, number(0.0))


def convert_p_relu(site: NodeSite) -> Expr:
    """Convert PRelu of any dtype, with a slope of any shape that broadcasts to that of the data."""
    return _scale_negatives(site.bb, *site.inputs)


def convert_leaky_relu(site: NodeSite) -> Expr:
    """Convert LeakyRelu that returns NaN for -inf with slope 0, where TVM's operator returns 0."""
    if site.attr.get("alpha") != 0:
        return site.convert_by_tvm()
    return _scale_negatives(site.bb, site.inputs[0], relax.const(0, str(site.inputs[0].ty.dtype)))


def _scale_negatives(bb: BlockBuilder, data: Expr, slope: Expr) -> Expr:
    """Multiply negative elements by the slope."""
    scaled_data = bb.normalize(relax.op.multiply(data, slope))
    zero = relax.const(0, str(data.ty.dtype))
    return relax.op.where(bb.normalize(relax.op.less(data, zero)), scaled_data, data)


OPERATORS: Final = (
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
)
