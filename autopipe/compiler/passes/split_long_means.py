"""Split means and variances over images by axis, and along a long axis by group.

A long sum in one chain accumulates rounding errors: for 4096 equal numbers a relative error of
4e-5. An instance norm subtracts their mean from them and divides by the square root of its epsilon,
so that on an image of one colour 0.2 % of a standard deviation was left, instead of zero. Means of
rows have chains of 64 for 64 x 64 pixels, and rows are shared by threads. A variance is the mean of
the rows' variances plus the variance of the rows' means:

    mean(x, [1, 2])       of [1, 64, 64, 16]    becomes    mean(rows, [1]), rows = mean(x, [2])
    variance(x, [1, 2])                         becomes    mean(variance(x, [2]), [1])
                                                           + variance(rows, [1])

Audio of [1, 3200, 128] is reshaped to [1, 50, 64, 128]. For [1, 3199, 128] there are 49 such rows,
and 63 remaining elements. With n1 = 3136 and n2 = 63 elements both are combined as

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

from autopipe.compiler.graph.literals import read_static_shape
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls

_MEAN, _VARIANCE = MOMENTS = "relax.mean", "relax.variance"

_LONG: Final = 256
"""Elements of a mean from which on it is split by axis."""

_GROUP: Final = 64
"""Elements of a group of a long axis, unless a size of `_NEAR` divides the axis."""

_NEAR: Final = range(32, 129)
"""Preferred sizes of a group: divisors of the axis."""


def split_long_means(module: tvm.IRModule) -> tvm.IRModule:
    """Split the long means and variances of a module by axis, or by group."""
    return rewrite_calls(_split_mean, module)


def _split_mean(site: CallSite) -> relax.Expr:
    call, name = site.call, site.op
    if name not in MOMENTS:
        return call
    (value,) = call.args
    axes = _find_long_axes(value, call.attrs.axis)
    if len(axes) > 1:
        result = _reduce_axes(site, name, value, axes)
    elif axes and axes[0] < value.ty.ndim - 1:
        result = _split_reduction(site, name, value, axes[0])
    else:
        return call
    if call.attrs.keepdims:
        return result
    return relax.op.squeeze(result, [int(axis) for axis in call.attrs.axis])


def _reduce_axes(site: CallSite, name: str, value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """Compute the mean or the variance along axes, the last of them first."""
    within: relax.Expr | None = None  # the variance along the axes so far
    for axis in reversed(axes):
        if name == _VARIANCE:
            between = _emit_reduction(site, relax.op.variance, value, axis)
            if within is not None:
                between = site.emit(_emit_reduction(site, relax.op.mean, within, axis) + between)
            within = between
        value = _emit_reduction(site, relax.op.mean, value, axis)
    return value if within is None else within


def _split_reduction(site: CallSite, name: str, value: relax.Expr, axis: int) -> relax.Expr:
    """Compute the mean or the variance along one axis other than the last."""
    length = _read_shape(value)[axis]
    group = next((size for size in _NEAR if length % size == 0), _GROUP)
    grouped_length = length - length % group
    if grouped_length == length:
        return _reduce_in_groups(site, name, value, axis, group)
    rows, remainder = (
        _slice_axis(site, value, axis, 0, grouped_length),
        _slice_axis(site, value, axis, grouped_length, length),
    )
    share, rest_share = (
        relax.const(n / length, value.ty.dtype) for n in (grouped_length, length - grouped_length)
    )

    def both(moment: str) -> tuple[relax.Expr, relax.Expr]:
        return _reduce_in_groups(site, moment, rows, axis, group), _reduce_axes(
            site, moment, remainder, [axis]
        )

    first, last = both(name)
    weighted_sum = site.emit(site.emit(first * share) + site.emit(last * rest_share))
    if name != _VARIANCE:
        return weighted_sum
    difference = site.emit(relax.op.subtract(*both(_MEAN)))
    between = site.emit(site.emit(difference * difference) * share)
    return site.emit(weighted_sum + site.emit(between * rest_share))


def _reduce_in_groups(
    site: CallSite, name: str, value: relax.Expr, axis: int, group: int
) -> relax.Expr:
    """Compute the mean or the variance along an axis that a group's size divides."""
    shape = _read_shape(value)
    rows = [*shape[:axis], shape[axis] // group, group, *shape[axis + 1 :]]
    image = site.emit(relax.op.reshape(value, rows))
    result = _reduce_axes(site, name, image, [axis, axis + 1])
    return site.emit(relax.op.squeeze(result, [axis]))


def _slice_axis(site: CallSite, value: relax.Expr, axis: int, begin: int, end: int) -> relax.Expr:
    return site.emit(relax.op.strided_slice(value, [axis], [begin], [end]))


def _emit_reduction(
    site: CallSite, op: Callable[..., relax.Expr], value: relax.Expr, axis: int
) -> relax.Expr:
    return site.emit(op(value, [axis], keepdims=True))


def _read_shape(value: relax.Expr) -> tuple[int, ...]:
    return read_static_shape(value) or ()


def _find_long_axes(value: relax.Expr, axes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the axes of a long mean of floats, except those of extent 1; () for any other."""
    shape, kind = read_static_shape(value), str(getattr(value.ty, "dtype", ""))
    if shape is None or axes is None or not kind.startswith("float"):
        return ()
    long_axes = sorted(axis for n in axes if shape[axis := int(n) % len(shape)] > 1)
    return tuple(long_axes) if math.prod(shape[axis] for axis in long_axes) >= _LONG else ()
