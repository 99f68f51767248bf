"""Takes means and variances over images axis by axis.

A long sum in one chain drifts: 4096 equal numbers came out 4e-5 of themselves off. An instance norm
subtracts their mean from them and divides by the square root of its epsilon, so that on an image of
one colour 0.2 % of a standard deviation was left, where there is none. Means of rows have chains of
64 for 64 x 64 pixels, and rows are shared by threads. A variance is that inside of rows and that of
their means, which are there already:

    mean(x, [1, 2])       of [1, 64, 64, 16]    becomes    mean(rows, [1]), rows = mean(x, [2])
    variance(x, [1, 2])                         becomes    mean(variance(x, [2]), [1])
                                                           + variance(rows, [1])
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.literals import known_shape
from autopipe.compiler.graph.rewrite import rewrite

_LONG: Final = 256
"""Elements of a mean from which on it is taken axis by axis."""


def stepwise_means(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with long means and variances over several axes taken axis by axis."""
    return rewrite(_Means(module), module)


@mutator
class _Means(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name not in {"relax.mean", "relax.variance"}:
            return call
        (value,) = call.args
        axes = _long_axes(value, call.attrs.axis)
        if not axes:
            return call
        within: relax.Expr | None = None  # the variance along the axes so far
        for axis in reversed(axes):
            if name == "relax.variance":
                between = self._along(relax.op.variance, value, axis)
                within = self._sum(within, between, axis)
            value = self._along(relax.op.mean, value, axis)
        found = value if within is None else within
        return found if call.attrs.keepdims else relax.op.squeeze(found, list(axes))

    def _sum(self, within: relax.Expr | None, between: relax.Expr, axis: int) -> relax.Expr:
        if within is None:
            return between
        mean = self._along(relax.op.mean, within, axis)
        return self.builder_.emit(relax.op.add(mean, between))

    def _along(self, op: Callable[..., relax.Expr], value: relax.Expr, axis: int) -> relax.Expr:
        return self.builder_.emit(op(value, [axis], keepdims=True))


def _long_axes(value: relax.Expr, axes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the axes of a long mean of floats over several ones; () of any other."""
    shape, kind = known_shape(value), str(getattr(value.ty, "dtype", ""))
    if shape is None or axes is None or not kind.startswith("float"):
        return ()
    found = tuple(sorted(int(axis) % len(shape) for axis in axes))
    lengths = [shape[axis] for axis in found if shape[axis] > 1]
    return found if len(lengths) > 1 and math.prod(lengths) >= _LONG else ()
