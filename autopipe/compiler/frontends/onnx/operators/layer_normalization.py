"""LayerNormalization and its relatives."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator, Trait


def convert_layer_normalization(site: NodeSite) -> Expr:
    """Convert LayerNormalization with scale and bias of any shape that broadcasts to the data.

    Mean and inverse standard deviation are computed only if the node has these outputs.
    """
    data, scale, bias = site.inputs[0], site.inputs[1], site.find_input(2)
    axes = _list_last_axes(data, site.attr)
    output = _normalize_layer(site.bb, (data, scale, bias), axes, site.attr.get("epsilon", 1e-5))
    if site.output_count == 1:
        return output
    moments = _compute_moments(site.bb, data, axes, site.attr.get("epsilon", 1e-5))
    return relax.Tuple([output, *(relax.op.astype(one, "float32") for one in moments)])


def convert_skip_layer_normalization(site: NodeSite) -> Expr:
    """Convert onnxruntime's SkipLayerNormalization with as many outputs as the node has."""
    bb = site.bb
    data, skip, scale = site.inputs[:3]
    shift, bias = site.find_input(3), site.find_input(4)
    total = bb.normalize(relax.op.add(data, skip))
    if bias is not None:
        total = bb.normalize(relax.op.add(total, bias))
    epsilon, axes = site.attr.get("epsilon", 1e-12), [total.ty.ndim - 1]
    output = _normalize_layer(bb, (total, scale, shift), axes, epsilon)
    count = site.output_count
    if count == 1:
        return output
    return relax.Tuple([output, *_compute_moments(bb, total, axes, epsilon), total][:count])


def convert_rms_normalization(site: NodeSite) -> Expr:
    """Convert RMSNormalization of any axes and dtype, with a scale of any shape that broadcasts.

    TVM's operator does not support all axes, computes float64 in float32, and takes only a scale
    of the axes' shape.
    """
    data, scale = site.inputs[:2]
    axes, dtype = _list_last_axes(data, site.attr), str(data.ty.dtype)
    if axes[0] and dtype != "float64" and _has_shape_of(scale, data, axes):
        return site.convert_by_tvm()
    compute = "float64" if dtype == "float64" else "float32"
    wide = site.bb.normalize(relax.op.astype(data, compute))
    squares = relax.op.mean(relax.op.multiply(wide, wide), axes, keepdims=True)
    radicand = relax.op.add(squares, relax.const(site.attr.get("epsilon", 1e-5), compute))
    normalized_data = relax.op.multiply(wide, relax.op.rsqrt(radicand))
    return relax.op.multiply(site.bb.normalize(relax.op.astype(normalized_data, dtype)), scale)


def _list_last_axes(data: Expr, attr: Attributes) -> list[int]:
    rank = data.ty.ndim
    return list(range(int(attr.get("axis", -1)) % rank, rank))


def _has_shape_of(parameter: Expr, data: Expr, axes: list[int]) -> bool:
    """Whether a parameter has the shape of the data along the given axes."""
    sizes = [
        operand_facts.read_extents(value.ty, "an operand of a normalization")
        for value in (parameter, data)
    ]
    return sizes[0] == [sizes[1][axis] for axis in axes] and -1 not in sizes[0]


def _normalize_layer(
    bb: BlockBuilder, operands: tuple[Expr, Expr, Expr | None], axes: list[int], epsilon: float
) -> Expr:
    """Normalize data over axes, multiply by a scale and add a bias, which may be None."""
    data, scale, bias = operands
    dtype = str(data.ty.dtype)
    parameters = [value for value in (scale, bias) if value is not None]
    if dtype != "float64" and all(_has_shape_of(value, data, axes) for value in parameters):
        shift = relax.op.zeros(scale.ty.shape, dtype) if bias is None else bias
        return bb.normalize(relax.op.nn.layer_norm(data, scale, bb.normalize(shift), axes, epsilon))
    if dtype == "float64":
        mean, inverse = _compute_moments(bb, data, axes, epsilon)
        deviation = bb.normalize(relax.op.subtract(data, mean))
        output = bb.normalize(relax.op.multiply(deviation, inverse))
    else:
        sizes = relax.ShapeExpr([data.ty.shape.values[axis] for axis in axes])
        plain = [bb.normalize(make(sizes, dtype)) for make in (relax.op.ones, relax.op.zeros)]
        output = bb.normalize(relax.op.nn.layer_norm(data, *plain, axes, epsilon))
    output = bb.normalize(relax.op.multiply(output, scale))
    return output if bias is None else bb.normalize(relax.op.add(output, bias))


def _compute_moments(bb: BlockBuilder, data: Expr, axes: list[int], epsilon: float) -> list[Expr]:
    """Compute mean and inverse standard deviation over axes, in float64 or else in float32."""
    compute = "float64" if str(data.ty.dtype) == "float64" else "float32"
    wide = bb.normalize(relax.op.astype(data, compute))
    mean = bb.normalize(relax.op.mean(wide, axes, keepdims=True))
    variance = bb.normalize(relax.op.variance(wide, axes, keepdims=True))
    radicand = relax.op.add(variance, relax.const(epsilon, compute))
    return [mean, bb.normalize(relax.op.rsqrt(radicand))]


OPERATORS: Final = (
    Operator(
        name="EmbedLayerNormalization",
        domain=MICROSOFT,
        inputs=("input_ids", "", "word_embedding", "position_embedding", "", "gamma", "beta"),
    ),
    Operator(
        name="LayerNormalization",
        since=17,
        converter=convert_layer_normalization,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
    Operator(
        name="RMSNormalization",
        since=23,
        converter=convert_rms_normalization,
        weights={1: "scale"},
        traits=Trait.NORMALIZES,
    ),
    Operator(
        name="SkipLayerNormalization",
        domain=MICROSOFT,
        inputs=("input", "skip", "gamma"),
        converter=convert_skip_layer_normalization,
    ),
)
