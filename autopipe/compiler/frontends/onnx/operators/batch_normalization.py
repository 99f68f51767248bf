"""BatchNormalization with its running statistics."""

from typing import Final

from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def convert_batch_normalization(site: NodeSite) -> Expr:
    """Convert BatchNormalization in inference."""
    if site.attr.get("training_mode", 0):
        raise ModelError("BatchNormalization with training_mode is not supported")
    return site.convert_by_tvm()


OPERATORS: Final = (
    Operator(
        name="BatchNormalization",
        since=15,
        converter=convert_batch_normalization,
        weights={1: "scale", 2: "shift", 3: "mean", 4: "variance"},
        traits=Trait.NORMALIZES,
    ),
)
