"""Pads of windows over images of dynamic size."""

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
"""Number of leading axes that are not spatial: batch and channels."""


def make_window_rule(
    kind: str,
) -> Callable[[Extents, BlockBuilder, Inputs, Numbers, Attributes], None]:
    """Build the rule that replaces `auto_pad` and `ceil_mode` of a window by explicit pads."""

    def rule(
        extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
    ) -> None:
        auto_pad = operand_facts.decode_text(attr.get("auto_pad", b"NOTSET"))
        if auto_pad.startswith("SAME_") or attr.get("ceil_mode", 0):
            label = describe_node(kind, attr)
            sizes = extents.shape(inputs[0], label)[_OUTER:]
            if is_open(sizes):
                weight = find_optional_input(inputs, 1)
                _settle_pads(extents, sizes, attr, weight, label)

    return rule


def _settle_pads(
    extents: Extents, sizes: list[Size], attr: Attributes, weight: Expr | None, label: str
) -> None:
    window: list[int] = attr.get("kernel_shape", [])
    if "kernel_shape" not in attr and weight is not None:
        window = [int(size) for size in weight.ty.shape.values[_OUTER:]]
    ones = [1] * len(sizes)
    strides, gaps = attr.get("strides", ones), attr.get("dilations", ones)
    reaches = [(size - 1) * gap + 1 for size, gap in zip(window, gaps, strict=True)]
    auto_pad = operand_facts.decode_text(attr.pop("auto_pad", b"NOTSET"))
    if auto_pad.startswith("SAME_"):
        attr["pads"] = _pad_to_same_size(extents, sizes, strides, reaches, auto_pad, label)
    elif auto_pad == "VALID":
        attr["pads"] = [0] * 2 * len(sizes)
    if attr.pop("ceil_mode", 0):
        attr["pads"] = _pad_to_round_up(extents, sizes, strides, reaches, attr, label)


def _pad_to_same_size(
    extents: Extents,
    sizes: list[Size],
    strides: Sequence[int],
    reaches: Sequence[int],
    auto_pad: str,
    label: str,
) -> list[int]:
    """Return the pads of SAME_UPPER or SAME_LOWER."""
    first, last = [], []
    for size, stride, reach in zip(sizes, strides, reaches, strict=True):
        steps = tirx.floordiv(as_int64(size + (stride - 1)), as_integer(stride)) - 1
        total = extents.simple(tirx.max(steps * stride + reach - size, as_integer(0)))
        if not isinstance(total, int):
            raise ModelError(
                f"{label} with auto_pad {auto_pad} pads by another number at each size; write a "
                f"number for it in the pipeline, or a multiple of {stride}; "
                f"{advise_on_sizes([size])}"
            )
        half = total // 2
        first.append(half if auto_pad == "SAME_UPPER" else total - half)
        last.append(total - first[-1])
    return first + last


def _pad_to_round_up(
    extents: Extents,
    sizes: list[Size],
    strides: Sequence[int],
    reaches: Sequence[int],
    attr: Attributes,
    label: str,
) -> list[int]:
    """Return pads with which rounding down gives the output size of ceil_mode."""
    rank = len(sizes)
    pads = list(attr.get("pads") or [0] * 2 * rank)
    if attr.get("count_include_pad", 0):
        raise ModelError(
            f"{label} with ceil_mode and count_include_pad is not supported with dynamic shapes; "
            f"{advise_on_sizes(sizes)}"
        )
    for at, (size, stride, reach) in enumerate(zip(sizes, strides, reaches, strict=True)):
        extra_pad = stride - 1
        span = size + pads[at] + pads[rank + at] + extra_pad - reach
        start = tirx.floordiv(as_int64(span), as_integer(stride)) * stride
        if extents.truth(start < as_int64(size + pads[at])) is not True:
            raise ModelError(
                f"{label} with ceil_mode begins a window behind the image at some sizes; "
                f"{advise_on_sizes([size])}"
            )
        pads[rank + at] += extra_pad
    return pads
