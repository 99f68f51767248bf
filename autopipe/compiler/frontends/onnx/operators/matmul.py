"""Matrix products of floats."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator, Trait
from autopipe.errors import ModelError


def convert_fused_mat_mul(site: NodeSite) -> Expr:
    """Convert onnxruntime's FusedMatMul: alpha times a product of optionally transposed factors."""
    bb = site.bb
    flags = [name for name in ("transBatchA", "transBatchB") if site.attr.get(name, 0)]
    if flags:
        raise ModelError(f"{site.label} with {' and '.join(flags)} is not supported")
    left = _swap_last_axes(bb, site.inputs[0], site.attr.get("transA", 0))
    right = _swap_last_axes(bb, site.inputs[1], site.attr.get("transB", 0))
    product = bb.normalize(relax.op.matmul(left, right))
    alpha = float(site.attr.get("alpha", 1.0))
    if alpha == 1.0:
        return product
    return relax.op.multiply(product, relax.const(alpha, product.ty.dtype))


def _swap_last_axes(bb: BlockBuilder, factor: Expr, is_asked: int) -> Expr:
    """Transpose the last two axes if the flag is set; as in onnxruntime, a vector is unchanged."""
    rank = int(factor.ty.ndim)
    if not is_asked or rank == 1:
        return factor
    return bb.normalize(relax.op.permute_dims(factor, [*range(rank - 2), rank - 1, rank - 2]))


OPERATORS: Final = (
    Operator(
        name="FusedMatMul",
        domain=MICROSOFT,
        inputs=("A", "B"),
        converter=convert_fused_mat_mul,
        empty_result=0,
        weights={0: "kernel", 1: "kernel"},
    ),
    Operator(
        name="Gemm",
        since=13,
        weights={0: "kernel", 1: "kernel", 2: "shift"},
        traits=Trait.ENDS_IMAGE | Trait.REFUSES_NO_ROWS,
    ),
    Operator(
        name="MatMul",
        since=13,
        empty_result=0,
        weights={0: "kernel", 1: "kernel"},
        row_moments=rules.product_of_rows,
        traits=Trait.FOLDABLE,
    ),
    Operator(name="Einsum", since=28, empty_result=0),
)
