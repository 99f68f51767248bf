"""Takes means and variances over images axis by axis, and along a long axis group by group.

A long sum in one chain drifts: 4096 equal numbers came out 4e-5 of themselves off. An instance norm
subtracts their mean from them and divides by the square root of its epsilon, so that on an image of
one colour 0.2 % of a standard deviation was left, where there is none. Means of rows have chains of
64 for 64 x 64 pixels, and rows are shared by threads. A variance is that inside of rows and that of
their means, which are there already:

    mean(x, [1, 2])       of [1, 64, 64, 16]    becomes    mean(rows, [1]), rows = mean(x, [2])
    variance(x, [1, 2])                         becomes    mean(variance(x, [2]), [1])
                                                           + variance(rows, [1])

A sound of [1, 3200, 128] is an image of [1, 50, 64, 128] here. Of [1, 3199, 128] 49 such rows are
made, and 63 elements stay. With n1 = 3136 and n2 = 63 elements both come together as

    mean        n1 / 3199 mean1 + n2 / 3199 mean2
    variance    n1 / 3199 variance1 + n2 / 3199 variance2
                + (n1 / 3199) (n2 / 3199) (mean1 - mean2)^2

(T. F. Chan, G. H. Golub, R. J. LeVeque: Algorithms for computing the sample variance, 1983). The
last axis stays as it is: its elements are summed by vectors, in many chains.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.literals import read_static_shape
from autopipe.compiler.graph.rewrite import rewrite_graph

_MEAN, _VARIANCE = MOMENTS = "relax.mean", "relax.variance"

_LONG: Final = 256
"""Elements of a mean from which on it is taken axis by axis."""

_GROUP: Final = 64
"""Elements of a group of a long axis, unless the axis is divided by a number near it."""

_NEAR: Final = range(32, 129)
"""What is near it."""


def split_long_means(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with long means and variances taken axis by axis, or group by group."""
    return rewrite_graph(_Means(module), module)


@mutator
class _Means(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name not in MOMENTS:
            return call
        (value,) = call.args
        axes = _find_long_axes(value, call.attrs.axis)
        if len(axes) > 1:
            found = self._reduce_axes(name, value, axes)
        elif axes and axes[0] < value.ty.ndim - 1:
            found = self._split_reduction(name, value, axes[0])
        else:
            return call
        if call.attrs.keepdims:
            return found
        return relax.op.squeeze(found, [int(axis) for axis in call.attrs.axis])

    def _reduce_axes(self, name: str, value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
        """Return the mean or the variance along axes, the last of them first."""
        within: relax.Expr | None = None  # the variance along the axes so far
        for axis in reversed(axes):
            if name == _VARIANCE:
                between = self._emit_reduction(relax.op.variance, value, axis)
                within = self._add_variances(within, between, axis)
            value = self._emit_reduction(relax.op.mean, value, axis)
        return value if within is None else within

    def _split_reduction(self, name: str, value: relax.Expr, axis: int) -> relax.Expr:
        """Return the mean or the variance along one axis that is not the last one."""
        length = _read_shape(value)[axis]
        group = next((size for size in _NEAR if length % size == 0), _GROUP)
        whole = length - length % group
        if whole == length:
            return self._reduce_in_groups(name, value, axis, group)
        rows, rest = (
            self._slice_axis(value, axis, 0, whole),
            self._slice_axis(value, axis, whole, length),
        )
        share, other = (relax.const(n / length, value.ty.dtype) for n in (whole, length - whole))

        def both(moment: str) -> tuple[relax.Expr, relax.Expr]:
            return self._reduce_in_groups(moment, rows, axis, group), self._reduce_axes(
                moment, rest, [axis]
            )

        first, last = both(name)
        found = self._emit_add(self._emit_multiply(first, share), self._emit_multiply(last, other))
        if name != _VARIANCE:
            return found
        apart = self.builder_.emit(relax.op.subtract(*both(_MEAN)))
        between = self._emit_multiply(self._emit_multiply(apart, apart), share)
        return self._emit_add(found, self._emit_multiply(between, other))

    def _reduce_in_groups(self, name: str, value: relax.Expr, axis: int, group: int) -> relax.Expr:
        """Return the mean or the variance along an axis whose length is divided by a group's."""
        shape = _read_shape(value)
        rows = [*shape[:axis], shape[axis] // group, group, *shape[axis + 1 :]]
        image = self.builder_.emit(relax.op.reshape(value, rows))
        found = self._reduce_axes(name, image, [axis, axis + 1])
        return self.builder_.emit(relax.op.squeeze(found, [axis]))

    def _slice_axis(self, value: relax.Expr, axis: int, begin: int, end: int) -> relax.Expr:
        return self.builder_.emit(relax.op.strided_slice(value, [axis], [begin], [end]))

    def _add_variances(
        self, within: relax.Expr | None, between: relax.Expr, axis: int
    ) -> relax.Expr:
        if within is None:
            return between
        return self._emit_add(self._emit_reduction(relax.op.mean, within, axis), between)

    def _emit_add(self, one: relax.Expr, other: relax.Expr) -> relax.Expr:
        return self.builder_.emit(relax.op.add(one, other))

    def _emit_multiply(self, one: relax.Expr, other: relax.Expr) -> relax.Expr:
        return self.builder_.emit(relax.op.multiply(one, other))

    def _emit_reduction(
        self, op: Callable[..., relax.Expr], value: relax.Expr, axis: int
    ) -> relax.Expr:
        return self.builder_.emit(op(value, [axis], keepdims=True))


def _read_shape(value: relax.Expr) -> tuple[int, ...]:
    return read_static_shape(value) or ()


def _find_long_axes(value: relax.Expr, axes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the axes of a long mean of floats, but those of one element; () of any other."""
    shape, kind = read_static_shape(value), str(getattr(value.ty, "dtype", ""))
    if shape is None or axes is None or not kind.startswith("float"):
        return ()
    found = sorted(axis for one in axes if shape[axis := int(one) % len(shape)] > 1)
    return tuple(found) if math.prod(shape[axis] for axis in found) >= _LONG else ()
