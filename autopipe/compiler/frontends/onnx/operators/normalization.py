"""Normalizations."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body
from autopipe.errors import ModelError


def convert_batch_normalization(site: NodeSite) -> Expr:
    """Convert BatchNormalization in inference."""
    if site.attr.get("training_mode", 0):
        raise ModelError("BatchNormalization with training_mode is not supported")
    return site.convert_by_tvm()


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
    total = bb.normalize(data + skip if bias is None else data + skip + bias)
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
    squares = relax.op.mean(wide * wide, axes, keepdims=True)
    radicand = squares + relax.const(site.attr.get("epsilon", 1e-5), compute)
    return relax.op.astype(wide * relax.op.rsqrt(radicand), dtype) * scale


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
        return bb.normalize(relax.op.nn.layer_norm(data, scale, shift, axes, epsilon))
    if dtype == "float64":
        mean, inverse = _compute_moments(bb, data, axes, epsilon)
        output = (data - mean) * inverse
    else:
        sizes = relax.ShapeExpr([data.ty.shape.values[axis] for axis in axes])
        plain = [make(sizes, dtype) for make in (relax.op.ones, relax.op.zeros)]
        output = relax.op.nn.layer_norm(data, *plain, axes, epsilon)
    return bb.normalize(output * scale if bias is None else output * scale + bias)


def _compute_moments(bb: BlockBuilder, data: Expr, axes: list[int], epsilon: float) -> list[Expr]:
    """Compute mean and inverse standard deviation over axes, in float64 or else in float32."""
    compute = "float64" if str(data.ty.dtype) == "float64" else "float32"
    wide = bb.normalize(relax.op.astype(data, compute))
    mean = bb.normalize(relax.op.mean(wide, axes, keepdims=True))
    variance = relax.op.variance(wide, axes, keepdims=True)
    return [mean, bb.normalize(relax.op.rsqrt(variance + relax.const(epsilon, compute)))]


def convert_lp_normalization(site: NodeSite) -> Expr:
    """Convert LpNormalization: division by the norm, and 0 where the norm is 0."""
    data, axis, power = site.inputs[0], int(site.attr.get("axis", -1)), int(site.attr.get("p", 2))
    if power == 1:
        norm = relax.op.sum(relax.op.abs(data), axis, keepdims=True)
    elif power == 2:  # noqa: PLR2004  the only other value in ONNX
        norm = relax.op.sqrt(relax.op.sum(data * data, axis, keepdims=True))
    else:
        raise ModelError(f"{site.name!r} has p = {power}; 1 and 2 are supported")
    norm, none = site.bb.normalize(norm), relax.const(0, data.ty.dtype)
    return relax.op.where(relax.op.equal(norm, none), none, data / norm)


OPERATORS: Final = (
    Operator(
        name="BatchNormalization",
        since=15,
        converter=convert_batch_normalization,
        weights={1: "scale", 2: "shift", 3: "mean", 4: "variance"},
        traits=Trait.NORMALIZES,
    ),
    Operator(
        name="GroupNormalization",
        since=21,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
    Operator(
        name="InstanceNormalization",
        since=22,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
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
    Operator(name="LRN", since=13, converter=onnx_frontend.LocalResponseNormalization),
    Operator(name="LpNormalization", since=22, converter=convert_lp_normalization),
    Operator(
        name="MeanVarianceNormalization",
        since=13,
        body=write_onnx_body,
        traits=Trait.NORMALIZES | Trait.NEEDS_DEFAULTS,
    ),
)
