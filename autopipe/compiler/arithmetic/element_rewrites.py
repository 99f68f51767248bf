"""Rewrites the expression of each element that a function of topi computes."""

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import Expr

Compute = Callable[..., te.Tensor]
"""A function of topi: of tensors, and numbers."""

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""Returns what an operator is in a legalized graph, as TVM's attribute `FLegalize`."""


def rewrite_elements(
    compute: Compute, kinds: Sequence[type[Expr]], rewrite: Callable[[Any], Expr]
) -> Compute:
    """Return a function of topi whose expressions of these kinds are rewritten.

    `rewrite` takes an expression of one of them.
    """

    def compute_rewritten(*operands: object) -> te.Tensor:
        result = compute(*operands)
        if not isinstance(result, te.Tensor):
            return result
        (body,) = result.op.body
        rewritten = tvm_ffi.structural_map(body, [(kind, rewrite) for kind in kinds])
        if rewritten.same_as(body):
            return result
        axes = [axis.var for axis in result.op.axis]

        def element(*index: Expr) -> Expr:
            places = dict(zip(axes, index, strict=True))
            return tvm_ffi.structural_map(rewritten, (tirx.Var, lambda var: places.get(var, var)))

        return te.compute(result.shape, element, name=result.op.name, tag=result.op.tag)

    compute_rewritten.__name__ = compute.__name__
    return compute_rewritten
