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
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.frontends.onnx.conversion.places import limit_to_extents
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import (
    OUTER,
    check_window,
    divide_by_stride,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.windows import list_pads, settle_pads
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def convert_max_pool(site: NodeSite) -> Expr:
    """Convert MaxPool, with the indices of the maxima if the node has that output."""
    attr = _pad_attributes(site)
    maxima = site.convert_by_tvm(attr=attr)
    if site.output_count == 1:
        return maxima
    maxima = site.bb.normalize(maxima)
    return relax.Tuple([maxima, _find_maximum_places(site, maxima, attr)])


def convert_average_pool(site: NodeSite) -> Expr:
    """Convert AveragePool that supports `auto_pad` with dilations."""
    return site.convert_by_tvm(attr=_pad_attributes(site))


def convert_lp_pool(site: NodeSite) -> Expr:
    """Convert LpPool as the average of powers times the window size.

    TVM's averages over fewer elements where a window exceeds the end, as with `ceil_mode`.
    """
    bb, data, power = site.bb, site.inputs[0], int(site.attr.get("p", 2))
    number = partial(relax.const, dtype=str(data.ty.dtype))
    attr = _add_ceil_padding(site, _pad_attributes(site))
    powers = relax.op.abs(data)
    if power == 2:  # noqa: PLR2004 - the square is a product
        powers = data * data
    elif power > 1:
        powers = relax.op.power(powers, number(power))
    average_attributes = {**attr, "count_include_pad": 1, "ceil_mode": 0}
    mean = site.convert_by(onnx_frontend.AveragePool, [bb.normalize(powers)], average_attributes)
    total = mean * number(math.prod(attr["kernel_shape"]))
    if power == 1:
        return total
    if power == 2:  # noqa: PLR2004 - the square is a product
        return relax.op.sqrt(total)
    return relax.op.power(total, number(1 / power))


def convert_max_unpool(site: NodeSite) -> Expr:
    """Convert MaxUnpool to the default shape.

    With any other, runtimes differ in the meaning of indices.
    """
    label = site.label
    data, places = site.inputs[:2]
    sizes = operand_facts.require_shape(data, f"input of {label}")
    window = list(site.attr["kernel_shape"])
    rank = len(window)
    strides, pads = site.attr.get("strides", [1] * rank), site.attr.get("pads", [0] * 2 * rank)
    inner = [
        (size - 1) * strides[i] + window[i] - pads[i] - pads[rank + i]
        for i, size in enumerate(sizes[OUTER:])
    ]
    shape = [*sizes[:OUTER], *inner]
    if site.find_input(2) is not None and site.require_values(2, label).tolist() != shape:
        raise ModelError(f"{label} to another shape than {shape} is not supported")
    flat = relax.op.zeros([math.prod(shape)], data.ty.dtype)
    places = limit_to_extents(site, places, [math.prod(shape)], f"the places of {label}")
    rows = [site.bb.normalize(relax.op.reshape(values, [-1])) for values in (places, data)]
    return relax.op.reshape(relax.op.scatter_elements(flat, *rows, axis=0), shape)


def _pad_attributes(site: NodeSite) -> Attributes:
    """Replace `auto_pad` SAME_UPPER or SAME_LOWER by explicit pads."""
    attr = site.attr
    if not operand_facts.decode_text(attr.get("auto_pad", b"NOTSET")).startswith("SAME_"):
        return attr
    sizes = operand_facts.require_shape(site.inputs[0], f"input of {site.name!r}")[OUTER:]
    other_attributes = {name: value for name, value in attr.items() if name != "auto_pad"}
    return {**other_attributes, "pads": list_pads(site, sizes, attr["kernel_shape"])}


def _add_ceil_padding(site: NodeSite, attr: Attributes) -> Attributes:
    """Replace `ceil_mode` by padding for the windows that exceed the end.

    A window that would begin in the padding at the end is omitted.
    """
    if (
        not attr.get("ceil_mode", 0)
        or operand_facts.decode_text(attr.get("auto_pad", b"NOTSET")) == "VALID"
    ):
        return attr
    sizes = operand_facts.require_shape(site.inputs[0], f"input of {site.name!r}")[OUTER:]
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


def _find_maximum_places(site: NodeSite, maxima: Expr, attr: Attributes) -> Expr:
    """Compute the flat index, within the whole input, of each window's first maximum."""
    data, label = site.inputs[0], site.label
    sizes, results = (operand_facts.require_shape(each, label) for each in (data, maxima))
    inner = sizes[OUTER:]

    def whole(data: te.Tensor) -> te.Tensor:
        pool = _make_window_argmax(attr, inner)
        window_places = te.compute(
            results, lambda *index: pool(data, index), name="max_pool_places"
        )[0]

        def at(*index: Expr) -> Expr:
            place, image = window_places[index], index[0] * sizes[1] + index[1]
            if attr.get("storage_order", 0):
                place = _to_column_major(place, inner)
            return image.astype("int64") * math.prod(inner) + place

        return te.compute(results, at, name="places")

    return site.bb.emit_te(whole, data, primfunc_name_hint="max_pool_places")


def _make_window_argmax(
    attr: Attributes, inner: list[int]
) -> Callable[[te.Tensor, Sequence[Expr]], Sequence[Expr]]:
    """Build the reduction to (index, value) of a window's first maximum.

    Indices are flat within an image; padding is ignored.
    """
    ones = [1] * len(inner)
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    pads = attr.get("pads") or [0] * 2 * len(inner)
    steps = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(attr["kernel_shape"])]
    first = te.comm_reducer(_choose_larger, _make_least, name="first_largest")

    def pool(data: te.Tensor, index: Sequence[Expr]) -> Sequence[Expr]:
        coordinates = [
            index[OUTER + i] * strides[i] + step * dilations[i] - pads[i]
            for i, step in enumerate(steps)
        ]
        inside = tirx.all(
            *(tirx.all(place >= 0, place < inner[i]) for i, place in enumerate(coordinates))
        )
        place = tirx.const(0, "int64")
        for i, size in enumerate(inner):
            place = place * size + coordinates[i].astype("int64")
        candidate = (
            tirx.if_then_else(inside, place, tirx.const(-1, "int64")),
            tirx.if_then_else(
                inside, data[*index[:OUTER], *coordinates], tirx.min_value(data.dtype)
            ),
        )
        return first(candidate, axis=steps)

    return pool


def _choose_larger(lhs: Sequence[Expr], rhs: Sequence[Expr]) -> tuple[Expr, ...]:
    """Select the larger of two (index, value) pairs; of equal values that with the lower index."""
    equal = tirx.all(rhs[1] == lhs[1], rhs[0] < lhs[0])
    better = tirx.any(lhs[0] < 0, rhs[1] > lhs[1], equal)
    takes_rhs = tirx.all(rhs[0] >= 0, better)
    return tuple(tirx.Select(takes_rhs, b, a) for a, b in zip(lhs, rhs, strict=True))


def _make_least(place: object, value: object) -> tuple[Expr, Expr]:
    return tirx.const(-1, place), tirx.min_value(value)


def _to_column_major(place: Expr, sizes: list[int]) -> Expr:
    """Convert a row-major flat index to a column-major one."""
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
        converter=convert_average_pool,
        convert_dynamic=settle_pads,
        check_sizes=check_window,
        size_factor=divide_by_stride,
        moments=rules.averaged,
        traits=Trait.KEEPS_ERROR,
    ),
    Operator(
        name="GlobalAveragePool",
        since=22,
        moments=rules.averaged,
        traits=Trait.ENDS_IMAGE | Trait.KEEPS_ERROR,
    ),
    Operator(name="GlobalLpPool", since=22),
    Operator(
        name="GlobalMaxPool",
        since=22,
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
        converter=convert_lp_pool,
        convert_dynamic=settle_pads,
        check_sizes=check_window,
        size_factor=divide_by_stride,
    ),
    Operator(
        name="MaxPool",
        since=22,
        converter=convert_max_pool,
        convert_dynamic=settle_pads,
        check_sizes=check_window,
        size_factor=divide_by_stride,
        moments=rules.largest,
        traits=Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS | Trait.LOSES_NAN | Trait.COMPARES,
    ),
    Operator(name="MaxUnpool", since=22, converter=convert_max_unpool),
)
