"""EyeLike: an identity matrix of another tensor's shape."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_eye_like(site: NodeSite) -> Expr:
    """Convert EyeLike with the dtype of its attribute."""
    if "dtype" not in site.attr:
        return site.convert_by_tvm()
    rows, columns = site.inputs[0].ty.shape.values
    dtype = onnx_frontend.get_type(site.attr["dtype"])
    return relax.op.eye(rows, columns, site.attr.get("k", 0), dtype)


OPERATORS: Final = (
    Operator(name="EyeLike", since=22, converter=convert_eye_like, traits=Trait.FOLDABLE),
)
