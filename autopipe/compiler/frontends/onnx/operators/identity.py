"""Identity, and Dropout in inference mode."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

_RATIO_IS_AN_INPUT: Final = 12


def convert_dropout(site: NodeSite) -> Expr:
    """Convert Dropout in inference mode."""
    if site.opset >= _RATIO_IS_AN_INPUT and not any(_is_zero(site, at) for at in (1, 2)):
        raise ModelError("Dropout with training_mode is not supported")
    if site.output_count == 1:
        return site.convert_by_tvm()
    data = site.inputs[0]
    return relax.Tuple([data, site.bb.normalize(relax.op.ones(data.ty.shape, "bool"))])


def _is_zero(site: NodeSite, index: int) -> bool:
    """Whether an input is a constant 0, or absent."""
    values = site.read_values(index)
    return site.find_input(index) is None or (values is not None and values.item() == 0)


OPERATORS: Final = (
    Operator(
        name="Identity",
        since=25,
        compute_sizes=arithmetic.pass_on,
        traits=Trait.KEEPS_ELEMENTS
        | Trait.KEEPS_WEIGHTS
        | Trait.COMPUTES_SIZES
        | Trait.EXACT_SPECIALS,
    ),
    Operator(name="Dropout", since=22, converter=convert_dropout),
)
