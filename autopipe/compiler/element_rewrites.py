"""Rewrites the expression of each element that a function of topi computes."""

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import te, tirx

# ruff: noqa: ANN401  TVM's expressions have no types


def rewrite_elements(
    compute: Callable[..., Any], kinds: Sequence[type], rewrite: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a function of topi whose expressions of these kinds are rewritten."""

    def compute_rewritten(*operands: Any) -> Any:
        result = compute(*operands)
        if not isinstance(result, te.Tensor):
            return result
        (body,) = result.op.body
        rewritten = tvm_ffi.structural_map(body, [(kind, rewrite) for kind in kinds])
        if rewritten.same_as(body):
            return result
        axes = [axis.var for axis in result.op.axis]

        def element(*index: Any) -> Any:
            places = dict(zip(axes, index, strict=True))
            return tvm_ffi.structural_map(rewritten, (tirx.Var, lambda var: places.get(var, var)))

        return te.compute(result.shape, element, name=result.op.name, tag=result.op.tag)

    compute_rewritten.__name__ = compute.__name__
    return compute_rewritten
