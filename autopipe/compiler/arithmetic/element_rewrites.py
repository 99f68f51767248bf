"""Rewrite the element expressions of topi functions."""

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import Expr

Compute = Callable[..., te.Tensor]
"""A topi function of tensors and scalars."""

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""Legalizes a call of an op, as TVM's attribute `FLegalize`."""


def rewrite_elements(
    compute: Compute, kinds: Sequence[type[Expr]], rewrite: Callable[[Any], Expr]
) -> Compute:
    """Wrap a topi function: rewrite expressions of some kinds in its result.

    `rewrite` takes an expression of one of `kinds`.
    """

    def compute_rewritten(*operands: object) -> te.Tensor:
        result = compute(*operands)
        if not isinstance(result, te.Tensor):
            return result
        (body,) = result.op.body
        rewritten_body = tvm_ffi.structural_map(body, [(kind, rewrite) for kind in kinds])
        if rewritten_body.same_as(body):
            return result
        axes = [axis.var for axis in result.op.axis]

        def element(*index: Expr) -> Expr:
            places = dict(zip(axes, index, strict=True))
            return tvm_ffi.structural_map(
                rewritten_body, (tirx.Var, lambda var: places.get(var, var))
            )

        return te.compute(result.shape, element, name=result.op.name, tag=result.op.tag)

    compute_rewritten.__name__ = compute.__name__
    return compute_rewritten
