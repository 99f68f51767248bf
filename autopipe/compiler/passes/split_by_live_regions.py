"""Split dilated convolutions into regions of the image that the same taps read.

A DeepLab head at 16 x 16 pixels has a 3x3 kernel with dilation 12 and as much padding. Rows 0 to 3
of the result read the taps 1 and 2 (rows 0 to 3 and 12 to 15 of the image, the other tap is above
it), rows 4 to 11 only tap 1, and rows 12 to 15 the taps 0 and 1. Columns are the same. So each of
nine regions is a convolution without padding by a part of the kernel, with a quarter of the
multiplications in total:

    rows and columns   4 to 11: 8 of them, 1 tap; 0 to 3 and 12 to 15: 4 of them, 2 taps each
    one axis           8 * 1 + 4 * 2 + 4 * 2 = 24 of 16 * 3 = 48 taps
    both               24 * 24 = 576 of 48 * 48 = 2304

    conv2d(x, w, padding 12, dilation 12) becomes concat of
        conv2d(x, w[:, :, 1:3, 1:3], dilation 12), conv2d(x[:, :, :, 4:12], w[:, :, 1:3, 1:2]), ...
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import tvm
from tvm import relax

from autopipe.compiler.graph.convolutions import (
    list_axes,
    list_distinct_convolutions,
    rebuild_convolution,
)
from autopipe.compiler.graph.literals import read_static_shape
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls

_PARTS: Final = 3
"""Most regions along an axis: more are small convolutions, each with its weights to read."""

_LIVE: Final = 0.35
"""Largest fraction of live taps; above it, minimal filtering multiplies as little."""

_SAVED: Final = 1 << 22
"""Fewest multiply-adds saved, 0.1 ms of a core, that pay for additional kernel calls."""


@dataclass(frozen=True, slots=True)
class LiveRegion:
    """Neighbouring results along an axis, and the taps that read the image for all of them."""

    results: int
    """The number of results."""
    taps: range
    rows: range
    """The range of image elements that they read."""

    @property
    def work(self) -> int:
        """The number of products of a result and a tap."""
        return self.results * len(self.taps)


def list_live_regions(
    size: int, taps: int, dilation: int, pad: tuple[int, int]
) -> list[LiveRegion]:
    """List the regions of an axis of `size` elements with stride 1, in order.

    The list is empty if a result reads nothing but padding.
    """

    def live(result: int) -> tuple[int, ...]:
        first = result - pad[0]
        return tuple(tap for tap in range(taps) if 0 <= first + tap * dilation < size)

    regions = []
    for tap_indices, group in groupby(range(size + sum(pad) - dilation * (taps - 1)), live):
        results = list(group)
        if not tap_indices:
            return []
        first = results[0] - pad[0] + tap_indices[0] * dilation
        last = results[-1] - pad[0] + tap_indices[-1] * dilation
        live_taps, rows = range(tap_indices[0], tap_indices[-1] + 1), range(first, last + 1)
        regions.append(LiveRegion(len(results), live_taps, rows))
    return regions


def split_by_live_regions(module: tvm.IRModule) -> tvm.IRModule:
    """Split the convolutions of a module with few live taps into regions."""
    if not any(map(_find_regions, list_distinct_convolutions(module))):
        return module
    return rewrite_calls(_split_convolution, module)


def _split_convolution(site: CallSite) -> relax.Expr:
    axes = _find_regions(site.call)
    return _split_axes(site, axes, []) if axes else site.call


def _split_axes(
    site: CallSite, axes: Sequence[Sequence[LiveRegion]], at: list[LiveRegion]
) -> relax.Expr:
    """Compute all regions of the remaining axes, at one region `at` of each previous axis."""
    if not axes:
        return _convolve_region(site, at)
    axis = 2 + len(at)
    parts = [_split_axes(site, axes[1:], [*at, region]) for region in axes[0]]
    return site.emit(relax.op.concat(parts, axis)) if len(parts) > 1 else parts[0]


def _convolve_region(site: CallSite, regions: Sequence[LiveRegion]) -> relax.Expr:
    """Compute the results of one region."""
    call = site.call
    data, weight = call.args
    data = _slice_spatial_axes(site, data, [region.rows for region in regions])
    weight = _slice_spatial_axes(site, weight, [region.taps for region in regions])
    steps = [
        dilation if len(region.taps) > 1 else 1
        for dilation, region in zip(call.attrs.dilation, regions, strict=True)
    ]
    padding = [0] * 2 * len(regions)
    region_call = rebuild_convolution(call, data, weight, padding=padding, dilation=steps)
    return site.emit(region_call)


def _slice_spatial_axes(site: CallSite, tensor: relax.Expr, parts: Sequence[range]) -> relax.Expr:
    """Slice the spatial axes of an image or a kernel."""
    if [len(part) for part in parts] == list(read_static_shape(tensor) or ())[2:]:
        return tensor
    axes = list(range(2, 2 + len(parts)))
    begin, end = [part.start for part in parts], [part.stop for part in parts]
    return site.emit(relax.op.strided_slice(tensor, axes, begin, end))


def _find_regions(call: relax.Call) -> list[list[LiveRegion]]:
    """Return the regions along each axis, or [] if the convolution is not split."""
    axes = list_axes(call)
    if not axes or call.attrs.groups != 1 or any(axis.stride != 1 for axis in axes):
        return []
    regions = [list_live_regions(axis.size, axis.taps, axis.dilation, axis.pad) for axis in axes]
    if not all(0 < len(parts) <= _PARTS for parts in regions):
        return []
    everything = math.prod(
        axis.taps * sum(part.results for part in parts)
        for axis, parts in zip(axes, regions, strict=True)
    )
    live = math.prod(sum(part.work for part in parts) for parts in regions)
    batch, *_ = read_static_shape(call.args[0]) or ()
    outputs, inputs, *_ = read_static_shape(call.args[1]) or ()
    saved_operations = (everything - live) * batch * outputs * inputs
    return regions if live <= _LIVE * everything and saved_operations >= _SAVED else []
