"""Pooling over windows, and over the whole image."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.conversion.places import limit_to_extents
from autopipe.compiler.frontends.onnx.conversion.window import check_window, divide_by_stride
from autopipe.compiler.frontends.onnx.dynamic_sizes.windows import make_window_rule
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

_OUTER: Final = 2
"""Batch and channels, which are no axes of the window."""


class MaxPool(onnx_frontend.MaxPool):
    """MaxPool, and the places of the maxima where they are read."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        attr = _pad_attributes(inputs[0], attr)
        pooled = super()._impl_v1(bb, inputs, attr, params)
        if attr["tvm_custom"]["num_outputs"] == 1:
            return pooled
        pooled = bb.normalize(pooled)
        return relax.Tuple([pooled, _find_maximum_places(bb, inputs[0], pooled, attr)])


class AveragePool(onnx_frontend.AveragePool):
    """AveragePool, padded to the same size with gaps in the window, too."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        return super()._impl_v1(bb, inputs, _pad_attributes(inputs[0], attr), params)


class LpPool(onnx_frontend.LpPool):
    """LpPool as the average of powers, times their number.

    TVM's averages over fewer elements where a window hangs over the end, as with `ceil_mode`.
    """

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, power = inputs[0], int(attr.get("p", 2))
        number = partial(relax.const, dtype=str(data.ty.dtype))
        attr = _add_ceil_padding(data, _pad_attributes(data, attr))
        powers = bb.normalize(relax.op.abs(data))
        if power == 2:  # noqa: PLR2004 - the square is a product
            powers = bb.normalize(relax.op.multiply(data, data))
        elif power > 1:
            powers = bb.normalize(relax.op.power(powers, number(power)))
        averaged = {**attr, "count_include_pad": 1, "ceil_mode": 0}
        mean = onnx_frontend.AveragePool._impl_v1(bb, [powers], averaged, params)  # noqa: SLF001
        count = math.prod(attr["kernel_shape"])
        total = bb.normalize(relax.op.multiply(bb.normalize(mean), number(count)))
        if power == 1:
            return total
        if power == 2:  # noqa: PLR2004 - the square is a product
            return relax.op.sqrt(total)
        return relax.op.power(total, number(1 / power))


class MaxUnpool(onnx_frontend.MaxUnpool):
    """MaxUnpool to the shape that follows; to another, runtimes differ in what places mean."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        what = f"MaxUnpool {operand_facts.quote_node_name(attr)}"
        data, places, wanted = inputs[0], inputs[1], find_optional_input(inputs, 2)
        sizes, window = (
            operand_facts.require_shape(data, f"input of {what}"),
            list(attr["kernel_shape"]),
        )
        rank = len(window)
        strides, pads = attr.get("strides", [1] * rank), attr.get("pads", [0] * 2 * rank)
        inner = [
            (size - 1) * strides[i] + window[i] - pads[i] - pads[rank + i]
            for i, size in enumerate(sizes[_OUTER:])
        ]
        shape = [*sizes[:_OUTER], *inner]
        if (
            wanted is not None
            and operand_facts.require_values(wanted, params, what).tolist() != shape
        ):
            raise ModelError(f"{what} to another shape than {shape} is not supported")
        flat = bb.normalize(relax.op.zeros([math.prod(shape)], data.ty.dtype))
        places = limit_to_extents(bb, places, [math.prod(shape)], params, f"the places of {what}")
        given = [bb.normalize(relax.op.reshape(values, [-1])) for values in (places, data)]
        spread = bb.normalize(relax.op.scatter_elements(flat, *given, axis=0))
        return relax.op.reshape(spread, shape)


def _pad_attributes(data: Expr, attr: Attributes) -> Attributes:
    """Return the attributes with pads in place of the wish for as many results as strides fit."""
    wish = operand_facts.decode_text(attr.get("auto_pad", b"NOTSET"))
    if not wish.startswith("SAME_"):
        return attr
    sizes = operand_facts.require_shape(data, f"input of {operand_facts.quote_node_name(attr)}")[
        _OUTER:
    ]
    ones = [1] * len(sizes)
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    first, last = [], []
    for i, size in enumerate(sizes):
        reach = (attr["kernel_shape"][i] - 1) * dilations[i] + 1
        total = max(0, (-(-size // strides[i]) - 1) * strides[i] + reach - size)
        half = total // 2
        first.append(half if wish == "SAME_UPPER" else total - half)
        last.append(total - first[-1])
    kept = {name: value for name, value in attr.items() if name != "auto_pad"}
    return {**kept, "pads": first + last}


def _add_ceil_padding(data: Expr, attr: Attributes) -> Attributes:
    """Return the attributes with enough padding for the windows that `ceil_mode` has hang over.

    A window that would begin in the padding at the end is left out.
    """
    if (
        not attr.get("ceil_mode", 0)
        or operand_facts.decode_text(attr.get("auto_pad", b"NOTSET")) == "VALID"
    ):
        return attr
    sizes = operand_facts.require_shape(data, f"input of {operand_facts.quote_node_name(attr)}")[
        _OUTER:
    ]
    rank = len(sizes)
    strides, dilations = attr.get("strides", [1] * rank), attr.get("dilations", [1] * rank)
    pads = [int(width) for width in attr.get("pads") or [0] * 2 * rank]
    for axis, size in enumerate(sizes):
        reach, stride = (attr["kernel_shape"][axis] - 1) * dilations[axis] + 1, strides[axis]
        first, last = pads[axis], pads[rank + axis]
        count = -(-(size + first + last - reach) // stride) + 1
        count -= (count - 1) * stride >= size + first
        pads[rank + axis] = max((count - 1) * stride + reach - size - first, 0)
    return {**attr, "pads": pads}


def _find_maximum_places(bb: BlockBuilder, data: Expr, pooled: Expr, attr: Attributes) -> Expr:
    """Return where the first maximum of each window is, counted through the whole input."""
    what = f"MaxPool {operand_facts.quote_node_name(attr)}"
    sizes, results = (
        operand_facts.require_shape(data, what),
        operand_facts.require_shape(pooled, what),
    )
    inner = sizes[_OUTER:]

    def whole(data: te.Tensor) -> te.Tensor:
        pool = _make_window_argmax(attr, inner)
        found = te.compute(results, lambda *index: pool(data, index), name="max_pool_places")[0]

        def at(*index: Expr) -> Expr:
            place, image = found[index], index[0] * sizes[1] + index[1]
            if attr.get("storage_order", 0):
                place = _to_column_major(place, inner)
            return image.astype("int64") * math.prod(inner) + place

        return te.compute(results, at, name="places")

    return bb.emit_te(whole, data, primfunc_name_hint="max_pool_places")


def _make_window_argmax(
    attr: Attributes, inner: list[int]
) -> Callable[[te.Tensor, Sequence[Expr]], Sequence[Expr]]:
    """Return what computes, of data and an index, place and value of a window's first maximum.

    Places are counted through an image; those in the padding do not count.
    """
    ones = [1] * len(inner)
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    pads = attr.get("pads") or [0] * 2 * len(inner)
    steps = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(attr["kernel_shape"])]
    first = te.comm_reducer(_choose_larger, _make_least, name="first_largest")

    def pool(data: te.Tensor, index: Sequence[Expr]) -> Sequence[Expr]:
        there = [
            index[_OUTER + i] * strides[i] + step * dilations[i] - pads[i]
            for i, step in enumerate(steps)
        ]
        inside = tirx.all(
            *(tirx.all(place >= 0, place < inner[i]) for i, place in enumerate(there))
        )
        place = tirx.const(0, "int64")
        for i, size in enumerate(inner):
            place = place * size + there[i].astype("int64")
        found = (
            tirx.if_then_else(inside, place, tirx.const(-1, "int64")),
            tirx.if_then_else(inside, data[*index[:_OUTER], *there], tirx.min_value(data.dtype)),
        )
        return first(found, axis=steps)

    return pool


def _choose_larger(one: Sequence[Expr], other: Sequence[Expr]) -> tuple[Expr, ...]:
    """Choose between two places with their values: the larger, of equal ones the first."""
    equal = tirx.all(other[1] == one[1], other[0] < one[0])
    better = tirx.any(one[0] < 0, other[1] > one[1], equal)
    taken = tirx.all(other[0] >= 0, better)
    return tuple(tirx.Select(taken, b, a) for a, b in zip(one, other, strict=True))


def _make_least(place: object, value: object) -> tuple[Expr, Expr]:
    return tirx.const(-1, place), tirx.min_value(value)


def _to_column_major(place: Expr, sizes: list[int]) -> Expr:
    """Return a place that was counted along the last axis, counted along the first."""
    digits = []
    for size in reversed(sizes):
        digits.append(tirx.floormod(place, tirx.const(size, "int64")))
        place = tirx.floordiv(place, tirx.const(size, "int64"))
    total = tirx.const(0, "int64")
    for digit, size in zip(digits, reversed(sizes), strict=True):
        total = total * size + digit
    return total


OPERATORS: Final = (
    Operator(
        name="AveragePool",
        since=22,
        converter=AveragePool,
        convert_dynamic=make_window_rule("AveragePool"),
        check_sizes=check_window,
        size_factor=divide_by_stride,
        moments=rules.averaged,
        traits=Trait.KEEPS_ERROR,
    ),
    Operator(
        name="GlobalAveragePool",
        since=22,
        converter=onnx_frontend.GlobalAveragePool,
        moments=rules.averaged,
        traits=Trait.ENDS_IMAGE | Trait.KEEPS_ERROR,
    ),
    Operator(name="GlobalLpPool", since=22, converter=onnx_frontend.GlobalLpPool),
    Operator(
        name="GlobalMaxPool",
        since=22,
        converter=onnx_frontend.GlobalMaxPool,
        moments=rules.largest,
        traits=Trait.ENDS_IMAGE
        | Trait.KEEPS_ERROR
        | Trait.EXACT_SPECIALS
        | Trait.LOSES_NAN
        | Trait.COMPARES,
    ),
    Operator(
        name="LpPool",
        since=22,
        converter=LpPool,
        convert_dynamic=make_window_rule("LpPool"),
        check_sizes=check_window,
        size_factor=divide_by_stride,
    ),
    Operator(
        name="MaxPool",
        since=22,
        converter=MaxPool,
        convert_dynamic=make_window_rule("MaxPool"),
        check_sizes=check_window,
        size_factor=divide_by_stride,
        moments=rules.largest,
        traits=Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS | Trait.LOSES_NAN | Trait.COMPARES,
    ),
    Operator(name="MaxUnpool", since=22, converter=MaxUnpool),
)
