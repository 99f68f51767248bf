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

from autopipe.compiler.graph.literals import known_shape
from autopipe.compiler.graph.rewrite import rewrite

_VARIANCE: Final = "relax.variance"

_LONG: Final = 256
"""Elements of a mean from which on it is taken axis by axis."""

_GROUP: Final = 64
"""Elements of a group of a long axis, unless the axis is divided by a number near it."""

_NEAR: Final = range(32, 129)
"""What is near it."""


def stepwise_means(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with long means and variances over several axes taken axis by axis."""
    return rewrite(_Means(module), module)


@mutator
class _Means(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name not in {"relax.mean", _VARIANCE}:
            return call
        (value,) = call.args
        axes = _long_axes(value, call.attrs.axis)
        if axes:
            found = self._moment(name, value, axes)
        elif (axis := _long_axis(value, call.attrs.axis)) is not None:
            axes, found = call.attrs.axis, self._in_groups(name, value, axis)
        else:
            return call
        return (
            found if call.attrs.keepdims else relax.op.squeeze(found, [int(axis) for axis in axes])
        )

    def _moment(self, name: str, value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
        """Return the mean or the variance along axes, the last of them first."""
        within: relax.Expr | None = None  # the variance along the axes so far
        for axis in reversed(axes):
            if name == _VARIANCE:
                between = self._along(relax.op.variance, value, axis)
                within = self._sum(within, between, axis)
            value = self._along(relax.op.mean, value, axis)
        return value if within is None else within

    def _in_groups(self, name: str, value: relax.Expr, axis: int) -> relax.Expr:
        """Return the mean or the variance along one axis that is not the last one."""
        length = _shape(value)[axis]
        group = next((size for size in _NEAR if length % size == 0), _GROUP)
        whole = length - length % group
        first = self._grouped(name, self._part(value, axis, 0, whole), axis, group)
        if whole == length:
            return first
        rest = self._part(value, axis, whole, length)
        share, other = (relax.const(n / length, value.ty.dtype) for n in (whole, length - whole))
        last = self._moment(name, rest, [axis])
        found = self._added(self._times(first, share), self._times(last, other))
        if name != _VARIANCE:
            return found
        means = [self._grouped("relax.mean", self._part(value, axis, 0, whole), axis, group),
                 self._moment("relax.mean", rest, [axis])]  # fmt: skip
        apart = self.builder_.emit(relax.op.subtract(*means))
        between = self._times(self._times(apart, apart), share)
        return self._added(found, self._times(between, other))

    def _grouped(self, name: str, value: relax.Expr, axis: int, group: int) -> relax.Expr:
        """Return the mean or the variance along an axis whose length is divided by a group's."""
        shape = _shape(value)
        rows = [*shape[:axis], shape[axis] // group, group, *shape[axis + 1 :]]
        image = self.builder_.emit(relax.op.reshape(value, rows))
        found = self._moment(name, image, [axis, axis + 1])
        return self.builder_.emit(relax.op.squeeze(found, [axis]))

    def _part(self, value: relax.Expr, axis: int, begin: int, end: int) -> relax.Expr:
        if (begin, end) == (0, _shape(value)[axis]):
            return value
        return self.builder_.emit(relax.op.strided_slice(value, [axis], [begin], [end]))

    def _sum(self, within: relax.Expr | None, between: relax.Expr, axis: int) -> relax.Expr:
        if within is None:
            return between
        return self._added(self._along(relax.op.mean, within, axis), between)

    def _added(self, one: relax.Expr, other: relax.Expr) -> relax.Expr:
        return self.builder_.emit(relax.op.add(one, other))

    def _times(self, one: relax.Expr, other: relax.Expr) -> relax.Expr:
        return self.builder_.emit(relax.op.multiply(one, other))

    def _along(self, op: Callable[..., relax.Expr], value: relax.Expr, axis: int) -> relax.Expr:
        return self.builder_.emit(op(value, [axis], keepdims=True))


def _shape(value: relax.Expr) -> tuple[int, ...]:
    return known_shape(value) or ()


def _long_axes(value: relax.Expr, axes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the axes of a long mean of floats over several ones; () of any other."""
    shape, kind = known_shape(value), str(getattr(value.ty, "dtype", ""))
    if shape is None or axes is None or not kind.startswith("float"):
        return ()
    found = tuple(sorted(int(axis) % len(shape) for axis in axes))
    lengths = [shape[axis] for axis in found if shape[axis] > 1]
    return found if len(lengths) > 1 and math.prod(lengths) >= _LONG else ()


def _long_axis(value: relax.Expr, axes: Sequence[int] | None) -> int | None:
    """Return the axis of a long mean of floats over one that is not the last; None of any other."""
    shape, kind = known_shape(value), str(getattr(value.ty, "dtype", ""))
    if shape is None or axes is None or not kind.startswith("float"):
        return None
    found = [int(axis) % len(shape) for axis in axes if shape[int(axis)] > 1]
    if len(found) != 1 or found[0] == len(shape) - 1 or shape[found[0]] < _LONG:
        return None
    return found[0]
