"""Pow."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

_LARGEST_CHAIN: Final = 8
"""Maximum exponent of integer powers; larger ones are computed in float64."""


def convert_pow(site: NodeSite) -> Expr:
    """Convert Pow of any two dtypes: the result has that of the base."""
    bb = site.bb
    base, exponent = site.inputs
    of_base, of_exponent = (str(value.ty.dtype) for value in site.inputs)
    if of_base.startswith("float"):
        if of_base == of_exponent:
            return site.convert_by_tvm()
        exponent = bb.normalize(relax.op.astype(exponent, of_base))
        return site.convert_by_tvm(inputs=[base, exponent])
    if (times := _read_exponent(exponent)) is not None:
        ones = list(range(exponent.ty.ndim - base.ty.ndim))  # axes that only the exponent has
        base = bb.normalize(relax.op.expand_dims(base, ones)) if ones else base
        return _multiply_repeatedly(bb, base, times)
    wide = [bb.normalize(relax.op.astype(value, "float64")) for value in site.inputs]
    return relax.op.astype(relax.op.power(*wide), of_base)


def _read_exponent(exponent: Expr) -> int | None:
    """Return a small constant scalar exponent, None for others."""
    if not isinstance(exponent, GenericConst):
        return None
    values = exponent.value.numpy()
    small = values.size == 1 and 1 <= values.item() <= _LARGEST_CHAIN
    return int(values.item()) if small and values.item() == int(values.item()) else None


def _multiply_repeatedly(bb: BlockBuilder, base: Expr, times: int) -> Expr:
    result = base
    for _ in range(times - 1):
        result = bb.normalize(relax.op.multiply(result, base))
    return result


OPERATORS: Final = (
    Operator(
        name="Pow",
        since=15,
        converter=convert_pow,
        moments=rules.squared,
        traits=Trait.FOLDABLE | Trait.SINGULAR_AT_ZERO,
    ),
)
