"""Pads of windows over images, also of dynamic size."""

from collections.abc import Iterator, Sequence

from tvm import tirx

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import OUTER
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    advise_on_sizes,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.errors import ModelError


def settle_pads(site: NodeSite) -> None:
    """Replace `auto_pad` and `ceil_mode` of a window over dynamic sizes by explicit pads."""
    attr = site.attr
    auto_pad = operand_facts.decode_text(attr.get("auto_pad", b"NOTSET"))
    if not auto_pad.startswith("SAME_") and not attr.get("ceil_mode", 0):
        return
    sizes = site.read_sizes()[OUTER:]
    if not is_open(sizes):
        return
    window, weight = attr.get("kernel_shape", []), site.find_input(1)
    if "kernel_shape" not in attr and weight is not None:
        window = [int(size) for size in weight.ty.shape.values[OUTER:]]
    if attr.get("auto_pad"):
        attr["pads"] = list_pads(site, sizes, window)
    attr.pop("auto_pad", None)
    if attr.pop("ceil_mode", 0):
        attr["pads"] = _pad_to_round_up(site, sizes, window)


def list_pads(site: NodeSite, sizes: Sequence[Size], window: Sequence[int]) -> list[int]:
    """Return the pads of a node: those that it states, or those of `auto_pad`."""
    auto_pad = operand_facts.decode_text(site.attr.get("auto_pad", b"NOTSET"))
    if not auto_pad.startswith("SAME_"):
        pads = site.attr.get("pads") if auto_pad == "NOTSET" else None
        return list(map(int, pads or [0] * 2 * len(sizes)))
    first, last = [], []
    for size, stride, reach in _list_axes(site, sizes, window):
        steps = tirx.floordiv(as_int64(size + (stride - 1)), as_integer(stride)) - 1
        total = site.extents.simple(tirx.max(steps * stride + reach - size, as_integer(0)))
        if not isinstance(total, int):
            raise ModelError(
                f"{site.label} with auto_pad {auto_pad} pads by another number at each size; write "
                f"a number for it in the pipeline, or a multiple of {stride}; "
                f"{advise_on_sizes([size])}"
            )
        half = total // 2
        first.append(half if auto_pad == "SAME_UPPER" else total - half)
        last.append(total - first[-1])
    return first + last


def _list_axes(
    site: NodeSite, sizes: Sequence[Size], window: Sequence[int]
) -> Iterator[tuple[Size, int, int]]:
    """Yield (size, stride, reach of the dilated window) of each axis."""
    ones = [1] * len(sizes)
    strides, gaps = site.attr.get("strides", ones), site.attr.get("dilations", ones)
    for size, length, stride, gap in zip(sizes, window, strides, gaps, strict=True):
        yield size, stride, (length - 1) * gap + 1


def _pad_to_round_up(site: NodeSite, sizes: Sequence[Size], window: Sequence[int]) -> list[int]:
    """Return pads with which rounding down gives the output size of ceil_mode."""
    rank = len(sizes)
    pads = list(site.attr.get("pads") or [0] * 2 * rank)
    if site.attr.get("count_include_pad", 0):
        raise ModelError(
            f"{site.label} with ceil_mode and count_include_pad is not supported with dynamic "
            f"shapes; {advise_on_sizes(sizes)}"
        )
    for at, (size, stride, reach) in enumerate(_list_axes(site, sizes, window)):
        extra_pad = stride - 1
        span = size + pads[at] + pads[rank + at] + extra_pad - reach
        start = tirx.floordiv(as_int64(span), as_integer(stride)) * stride
        if site.extents.truth(start < as_int64(size + pads[at])) is not True:
            raise ModelError(
                f"{site.label} with ceil_mode begins a window behind the image at some sizes; "
                f"{advise_on_sizes([size])}"
            )
        pads[rank + at] += extra_pad
    return pads
