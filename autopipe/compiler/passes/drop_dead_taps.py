"""Remove the taps of convolutions that only read padding.

A DeepLab head has dilations of 12, 24 and 36. At 16 x 16 pixels (from an image of 256 x 256) a 3x3
kernel with dilation 36 and as much padding reads rows -36 to -21, 0 to 15 and 36 to 51: only the
middle row of taps reads the image, and the convolution is a 1x1.

    conv2d(x, w[256, 960, 3, 3], padding 36, dilation 36)    becomes    conv2d(x, w[:, :, 1:2, 1:2])

Each removed tap at the start reduces the padding before by one dilation, each at the end the
padding after, so results keep their positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from autopipe.compiler.graph.convolutions import (
    list_axes,
    list_distinct_convolutions,
    rebuild_convolution,
)
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls


@dataclass(frozen=True, slots=True)
class LiveTaps:
    """The taps along an axis that read the image, and the padding that they need."""

    begin: int
    end: int
    """Exclusive end."""
    pad: tuple[int, int]
    """Before and after."""
    dilation: int
    """1 for a single tap."""

    @classmethod
    def of(
        cls, size: int, taps: int, stride: int, dilation: int, pad: tuple[int, int]
    ) -> "LiveTaps":
        """Compute the live taps of an axis of `size` elements; all taps if none can be removed."""
        span = size + sum(pad) - dilation * (taps - 1) - 1
        last = (
            span // stride * stride
        )  # offset of the last result's first tap from the first result's
        live = [
            tap for tap in range(taps)
            if (at := tap * dilation - pad[0]) < size and at + last >= 0
        ]  # fmt: skip
        all_taps = cls(0, taps, pad, dilation)
        if span < 0 or not live or len(live) == taps:
            return all_taps
        begin, end = live[0], live[-1] + 1
        remaining_pad = pad[0] - begin * dilation, pad[1] - (taps - end) * dilation
        if min(remaining_pad) < 0:
            return all_taps
        return cls(begin, end, remaining_pad, dilation if end - begin > 1 else 1)


def drop_dead_taps(module: tvm.IRModule) -> tvm.IRModule:
    """Reduce convolutions to the taps that read their image."""
    if not any(map(_find_live_taps, list_distinct_convolutions(module))):
        return module
    return rewrite_calls(_slice_kernel, module)


def _slice_kernel(site: CallSite) -> relax.Expr:
    call = site.call
    axes = _find_live_taps(call)
    if not axes:
        return call
    begin, end = [axis.begin for axis in axes], [axis.end for axis in axes]
    spatial = list(range(2, 2 + len(axes)))
    weight = site.emit(relax.op.strided_slice(call.args[1], spatial, begin, end))
    befores, afters = zip(*(axis.pad for axis in axes), strict=True)
    return rebuild_convolution(
        call, call.args[0], weight,
        padding=[*befores, *afters], dilation=[axis.dilation for axis in axes],
    )  # fmt: skip


def _find_live_taps(call: relax.Call) -> Sequence[LiveTaps]:
    """Return the live taps along each axis; empty if no tap can be removed."""
    axes = list_axes(call)
    live_taps = [LiveTaps.of(*axis) for axis in axes]
    taps = [axis.end - axis.begin for axis in live_taps]
    return () if taps == [axis.taps for axis in axes] else live_taps
