"""Pads of windows and of images whose size is open."""

from collections.abc import Callable, Sequence
from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Size,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    advise_on_sizes,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.errors import ModelError

# ruff: noqa: ARG001, PLR0913, PLR0917  TVM's converters have one signature

_OUTER: Final = 2
"""Batch and channels, which are no axes of the window."""


def make_window_rule(
    kind: str,
) -> Callable[[Extents, BlockBuilder, Inputs, Numbers, Attributes], None]:
    """Return the rule of a window: its pads as numbers, told to the converter by the attributes."""

    def rule(
        extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
    ) -> None:
        wish = operand_facts.decode_text(attr.get("auto_pad", b"NOTSET"))
        if wish.startswith("SAME_") or attr.get("ceil_mode", 0):
            what = describe_node(kind, attr)
            sizes = extents.shape(inputs[0], what)[_OUTER:]
            if is_open(sizes):
                weight = find_optional_input(inputs, 1)
                _settle_pads(extents, sizes, attr, weight, what)

    return rule


def _settle_pads(
    extents: Extents, sizes: list[Size], attr: Attributes, weight: Expr | None, what: str
) -> None:
    window: list[int] = attr.get("kernel_shape", [])
    if "kernel_shape" not in attr and weight is not None:
        window = [int(size) for size in weight.ty.shape.values[_OUTER:]]
    ones = [1] * len(sizes)
    strides, gaps = attr.get("strides", ones), attr.get("dilations", ones)
    reaches = [(size - 1) * gap + 1 for size, gap in zip(window, gaps, strict=True)]
    wish = operand_facts.decode_text(attr.pop("auto_pad", b"NOTSET"))
    if wish.startswith("SAME_"):
        attr["pads"] = _pad_to_same_size(extents, sizes, strides, reaches, wish, what)
    elif wish == "VALID":
        attr["pads"] = [0] * 2 * len(sizes)
    if attr.pop("ceil_mode", 0):
        attr["pads"] = _pad_to_round_up(extents, sizes, strides, reaches, attr, what)


def _pad_to_same_size(
    extents: Extents,
    sizes: list[Size],
    strides: Sequence[int],
    reaches: Sequence[int],
    wish: str,
    what: str,
) -> list[int]:
    """Return pads for as many results as strides fit."""
    first, last = [], []
    for size, stride, reach in zip(sizes, strides, reaches, strict=True):
        steps = tirx.floordiv(as_int64(size + (stride - 1)), as_integer(stride)) - 1
        total = extents.simple(tirx.max(steps * stride + reach - size, as_integer(0)))
        if not isinstance(total, int):
            raise ModelError(
                f"{what} with auto_pad {wish} pads by another number at each size; write a number "
                f"for it in the pipeline, or a multiple of {stride}; {advise_on_sizes([size])}"
            )
        half = total // 2
        first.append(half if wish == "SAME_UPPER" else total - half)
        last.append(total - first[-1])
    return first + last


def _pad_to_round_up(
    extents: Extents,
    sizes: list[Size],
    strides: Sequence[int],
    reaches: Sequence[int],
    attr: Attributes,
    what: str,
) -> list[int]:
    """Return pads with which a number of results that is rounded down is what ceil_mode means."""
    rank = len(sizes)
    pads = list(attr.get("pads") or [0] * 2 * rank)
    if attr.get("count_include_pad", 0):
        raise ModelError(
            f"{what} with ceil_mode and count_include_pad is not supported with open sizes; "
            f"{advise_on_sizes(sizes)}"
        )
    for at, (size, stride, reach) in enumerate(zip(sizes, strides, reaches, strict=True)):
        more = stride - 1
        span = size + pads[at] + pads[rank + at] + more - reach
        start = tirx.floordiv(as_int64(span), as_integer(stride)) * stride
        if extents.truth(start < as_int64(size + pads[at])) is not True:
            raise ModelError(
                f"{what} with ceil_mode begins a window behind the image at some sizes; "
                f"{advise_on_sizes([size])}"
            )
        pads[rank + at] += more
    return pads
