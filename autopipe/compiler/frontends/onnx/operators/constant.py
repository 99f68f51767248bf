"""Constant."""

from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_constant(site: NodeSite) -> Expr:
    """Convert Constant; an empty one becomes a kernel, as TVM's runtime loads no empty tensors."""
    constant = site.convert_by_tvm()
    array = constant.value.numpy()
    if array.size:
        return constant
    number = tirx.const(0, str(array.dtype))

    def nothing(_: te.Tensor) -> te.Tensor:
        return te.compute(array.shape, lambda *_: number, name="nothing")

    source = next(value for value in site.params[0].values() if isinstance(value, relax.Var))
    return site.bb.emit_te(nothing, source, primfunc_name_hint="nothing")


OPERATORS: Final = (
    Operator(name="Constant", since=25, converter=convert_constant, traits=Trait.EXACT_SPECIALS),
)
