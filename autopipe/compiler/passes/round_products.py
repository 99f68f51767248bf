"""Convert matmuls and convolutions to bfloat16 operands with float32 accumulation.

Both operands are rounded to bfloat16: weights once, at compile time, and activations where they are
produced, or where they are packed. A product of two such numbers is exact in float32.

Example: `conv2d(x, w)` of x [1, 64, 56, 56] and w [64, 64, 3, 3], both float32, becomes

    conv2d(astype(x, "bfloat16"), astype(w, "bfloat16"), out_dtype="float32")

Ops that do not fit the dot-product instruction stay in float32, and the reason is reported: it adds
pairs of neighbouring products, to at least four sums. An odd number of channels is padded with
zeros, together with the border of the image: the first layer of a network reads three.

    conv2d(x [1, 3, 224, 224], w [64, 3, 7, 7], padding=3)
    conv2d(pad(x) [1, 4, 230, 230], pad(w) [64, 4, 7, 7], padding=0)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tvm
from tvm import relax

from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.graph.convolutions import LAYOUTS, read_layouts, rebuild_convolution
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.passes.round_weights import is_call_of, trace_moved_weights

_WIDE: Final = "float32"
_SHORT: Final = "bfloat16"
_PRODUCT: Final = "relax.matmul"
_CONVOLUTION: Final = "relax.nn.conv2d"
_OTHERS: Final = frozenset(f"relax.nn.conv{kind}" for kind in (
    "1d", "3d", "1d_transpose", "2d_transpose", "3d_transpose"
))  # fmt: skip
_SUMS: Final = 4
"""Fewest sums of an instruction, which must divide the number of columns."""
_PAIR: Final = 2
_GROUP: Final = 4
"""Multiple to which odd channels are padded: four bfloat16 channels take eight bytes."""


@dataclass(frozen=True, slots=True)
class WideProduct:
    """A matmul or convolution that stays in float32."""

    op: str
    """The op, such as `matmul`."""
    weight: int | None
    """The index of its weight, from 0; null if both operands are computed."""
    reason: str


@dataclass(frozen=True, slots=True)
class RoundedProducts:
    """A module with bfloat16 matmuls, their number, and those that stay in float32."""

    module: tvm.IRModule
    short: int
    """Number of matmuls and convolutions with rounded operands."""
    kept: tuple[WideProduct, ...]


def round_products(module: tvm.IRModule, inputs: int, *, channels_last: bool) -> RoundedProducts:
    """Round the operands of matmuls and convolutions of `main` to bfloat16 where possible.

    `main` takes `inputs` inputs and then the weights. Convolutions are rounded if their layout will
    have the channels last; in others pairs are not contiguous.
    """
    weights = list(module["main"].params[inputs:])
    came_from = trace_moved_weights(module["main"], weights)
    places = {weight: place for place, weight in enumerate(weights)}
    short_products: list[relax.Call] = []
    wide_products: list[WideProduct] = []
    for binding in list_bindings(module["main"]):
        call = binding.value
        if not is_call_of(call, {_PRODUCT, _CONVOLUTION} | _OTHERS) or not _is_wide(call):
            continue
        reason = next(_list_refusals(call, came_from, channels_last=channels_last), None)
        if reason is None:
            short_products.append(call)
        else:
            weight_places = (
                places[came_from[arg]] for arg in reversed(call.args) if arg in came_from
            )
            op = call.op.name.rpartition(".")[2]
            wide_products.append(WideProduct(op, next(weight_places, None), reason))
    rounded_module = module
    if short_products:
        rounded_module = rewrite_calls(partial(_round_product, short_products), module)
    return RoundedProducts(rounded_module, len(short_products), tuple(wide_products))


def _is_wide(call: relax.Call) -> bool:
    return all(str(value.ty.dtype) == _WIDE for value in (*call.args, call))


def _list_refusals(
    call: relax.Call, came_from: Mapping[relax.Var, relax.Var], *, channels_last: bool
) -> Iterator[str]:
    """Yield the reasons why a matmul or convolution cannot use bfloat16."""
    op = call.op.name
    if op in _OTHERS:
        yield f"{op.rpartition('.')[2]} is not computed in bfloat16"
        return
    data, weight = call.args
    if weight not in came_from:
        yield "its right operand is no weight"
    elif data in came_from:
        yield "both of its operands are weights"
    elif op == _PRODUCT:
        yield from _check_matmul(weight)
    else:
        yield from _check_convolution(call, weight, channels_last=channels_last)


def _check_matmul(weight: relax.Expr) -> Iterator[str]:
    if weight.ty.ndim < _PAIR:
        yield "its weight is a vector"
        return
    depth, columns = _read_extent(weight, -2), _read_extent(weight, -1)
    yield from _check_extents(depth, "rows of its weight", columns, "columns")


def _check_convolution(
    call: relax.Call, weight: relax.Expr, *, channels_last: bool
) -> Iterator[str]:
    if int(call.attrs.groups) != 1:
        yield f"it has {int(call.attrs.groups)} groups"
    elif read_layouts(call) != LAYOUTS[_CONVOLUTION]:
        yield f"its layout is {' and '.join(read_layouts(call))}"
    elif not channels_last:
        yield "`layout` does not say `conv2d: [NHWC, HWIO]`"
    else:
        depth, columns = _read_extent(weight, 1), _read_extent(weight, 0)
        padded_depth = None if depth is None else depth + _count_padding_channels(depth)
        yield from _check_extents(padded_depth, "channels in", columns, "channels out")


def _check_extents(
    depth: int | None, depth_name: str, columns: int | None, column_name: str
) -> Iterator[str]:
    if depth is None or columns is None:
        yield "the sizes of its weight are open"
    elif depth % _PAIR:
        yield f"{depth} {depth_name} make no pairs"
    elif columns % _SUMS:
        yield f"{columns} {column_name} are no multiple of {_SUMS}"


def _count_padding_channels(channels: int) -> int:
    """Return the channels of zeros that pad an odd number of channels to a multiple of four."""
    return -channels % _GROUP if channels % _PAIR else 0


def _read_extent(value: relax.Expr, axis: int) -> int | None:
    size = value.ty.shape.values[axis] if value.ty.shape is not None else None
    return int(size) if isinstance(size, tvm.tirx.IntImm) else None


def _round_product(products: Sequence[relax.Call], site: CallSite) -> relax.Expr:
    """Round the operands of a chosen matmul or convolution."""
    call = site.call
    if not is_among(site.original, products):
        return call
    data, weight = call.args
    changes: dict[str, Any] = {}
    missing = 0 if site.op == _PRODUCT else _count_padding_channels(int(weight.ty.shape[1]))
    if missing:
        top, left, bottom, right = map(int, call.attrs.padding)
        outer_widths = [0, 0, 0, missing]
        data = relax.op.nn.pad(data, [*outer_widths, top, bottom, left, right])
        weight = relax.op.nn.pad(weight, [*outer_widths, 0, 0, 0, 0])
        changes = {"padding": [0, 0, 0, 0]}
    short = [site.emit(relax.op.astype(arg, _SHORT)) for arg in (data, weight)]
    if site.op == _PRODUCT:
        return relax.op.matmul(*short, out_dtype=_WIDE)
    return rebuild_convolution(call, *short, out_dtype=_WIDE, **changes)
