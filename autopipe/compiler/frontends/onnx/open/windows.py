"""Pads of windows and of images whose size is open."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tvm import relax, te, tirx

from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.open.extents import Extents, advice, is_open, whole, wide
from autopipe.compiler.frontends.onnx.open.shaping import called
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG001, PLR0913, PLR0917  TVM's converters have no types, and all of these have one signature

_OUTER: Final = 2
"""Batch and channels, which are no axes of the window."""


def _fit(kind: str) -> Any:
    """Return the rule of a window: its pads as numbers, told to the converter by the attributes."""

    def rule(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
        wish = known.text(attr.get("auto_pad", b"NOTSET"))
        if wish.startswith("SAME_") or attr.get("ceil_mode", 0):
            what = called(kind, attr)
            sizes = extents.shape(inputs[0], what)[_OUTER:]
            if is_open(sizes):
                weight = inputs[1] if len(inputs) > 1 else None
                _settle(extents, sizes, attr, weight, what)

    return rule


def _settle(extents: Extents, sizes: list[Any], attr: Any, weight: Any, what: str) -> None:
    window = attr.get("kernel_shape")
    if window is None:
        window = [int(size) for size in weight.ty.shape.values[_OUTER:]]
    ones = [1] * len(sizes)
    strides, gaps = attr.get("strides", ones), attr.get("dilations", ones)
    reaches = [(size - 1) * gap + 1 for size, gap in zip(window, gaps, strict=True)]
    wish = known.text(attr.pop("auto_pad", b"NOTSET"))
    if wish.startswith("SAME_"):
        attr["pads"] = _same(extents, sizes, strides, reaches, wish, what)
    elif wish == "VALID":
        attr["pads"] = [0] * 2 * len(sizes)
    if attr.pop("ceil_mode", 0):
        attr["pads"] = _up(extents, sizes, strides, reaches, attr, what)


def _same(
    extents: Extents, sizes: list[Any], strides: Any, reaches: Any, wish: str, what: str
) -> list[int]:
    """Return pads for as many results as strides fit."""
    first, last = [], []
    for size, stride, reach in zip(sizes, strides, reaches, strict=True):
        steps = tirx.floordiv(wide(size + (stride - 1)), whole(stride)) - 1
        total = extents.simple(tirx.max(steps * stride + reach - size, whole(0)))
        if not isinstance(total, int):
            raise ModelError(
                f"{what} with auto_pad {wish} pads by another number at each size; write a number "
                f"for it in the pipeline, or a multiple of {stride}; {advice([size])}"
            )
        half = total // 2
        first.append(half if wish == "SAME_UPPER" else total - half)
        last.append(total - first[-1])
    return first + last


def _up(
    extents: Extents, sizes: list[Any], strides: Any, reaches: Any, attr: Any, what: str
) -> list[int]:
    """Return pads with which a number of results that is rounded down is what ceil_mode means."""
    rank = len(sizes)
    pads = list(attr.get("pads") or [0] * 2 * rank)
    if attr.get("count_include_pad", 0):
        raise ModelError(
            f"{what} with ceil_mode and count_include_pad is not supported with open sizes; "
            f"{advice(sizes)}"
        )
    for at, (size, stride, reach) in enumerate(zip(sizes, strides, reaches, strict=True)):
        more = stride - 1
        span = size + pads[at] + pads[rank + at] + more - reach
        start = tirx.floordiv(wide(span), whole(stride)) * stride
        if extents.truth(start < wide(size + pads[at])) is not True:
            raise ModelError(
                f"{what} with ceil_mode begins a window behind the image at some sizes; "
                f"{advice([size])}"
            )
        pads[rank + at] += more
    return pads


def padded(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Pad of an open size, or by one."""
    what = called("Pad", attr)
    sizes = extents.shape(inputs[0], what)
    before, after = _pads(inputs, [*numbers, None, None, None][:4], attr, len(sizes), what)
    if not is_open([*sizes, *before, *after]):
        return None
    mode = known.text(attr.get("mode", b"constant"))
    made = [extents.simple(sum(three)) for three in zip(before, sizes, after, strict=True)]
    number = inputs[2] if len(inputs) > 2 else None  # noqa: PLR2004
    dtype = str(inputs[0].ty.dtype)
    if number is None:
        number = relax.const(attr.get("value", 0), dtype)
    number = bb.emit(relax.op.reshape(number, []))
    rank = len(sizes)
    if mode != "constant":
        needed = _needed(extents, mode, zip(sizes, before, after, strict=True))
        extents.require(bb, needed, f"{what} in mode {mode} adds more than there is")

    def compute(data: Any, number: Any, given: Any) -> Any:
        shifts = given[rank:]

        def at(*index: Any) -> Any:
            places = [place - shift for place, shift in zip(index, shifts, strict=True)]
            if mode != "constant":
                return data[
                    tuple(_PLACES[mode](*pair) for pair in zip(places, data.shape, strict=True))
                ]
            inside = [
                tirx.all(place >= 0, place < size)
                for place, size, padded in zip(places, data.shape, pads, strict=True)
                if padded
            ]
            if not inside:
                return data[tuple(places)]
            return tirx.if_then_else(tirx.all(*inside), data[tuple(places)], number[()])

        return te.compute(list(given[:rank]), at, name="pad")

    pads = [not (_none(low) and _none(high)) for low, high in zip(before, after, strict=True)]
    if mode not in _PLACES and mode != "constant":
        raise ModelError(f"{what} in mode {mode} is not supported")
    sizes_of = [wide(size) for size in (*made, *before)]
    return bb.emit_te(compute, inputs[0], number, sizes_of, primfunc_name_hint="pad")


def _needed(extents: Extents, mode: str, axes: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return how many elements a border is taken from, and how many there are, by axis."""
    pairs = []
    for size, low, high in axes:
        if not (_none(low) and _none(high)):
            widest = extents.simple(tirx.max(wide(low), wide(high)))
            pairs.append((widest + 1 if mode == "reflect" else 1, size))
    return pairs


def _none(number: Any) -> bool:
    return isinstance(number, int) and number == 0


def _pads(
    inputs: Any, numbers: Sequence[Array | None], attr: Mapping[str, Any], rank: int, what: str
) -> tuple[list[Any], list[Any]]:
    given = attr.get("pads", numbers[1])
    if given is None:
        raise ModelError(f"what {what} adds depends on what the model is given")
    pads = [number if not isinstance(number, int) else int(number) for number in list(given)]
    half = len(pads) // 2
    axes = list(range(half))
    if len(inputs) > 3 and inputs[3] is not None:  # noqa: PLR2004
        if numbers[3] is None:
            raise ModelError(f"which axes {what} works on depends on what the model is given")
        axes = [int(axis) % rank for axis in numbers[3]]
    before, after = [0] * rank, [0] * rank
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[half + at]
    return before, after


def _edge(place: Any, size: Any) -> Any:
    return tirx.max(tirx.min(place, size - 1), whole(0))


def _reflected(place: Any, size: Any) -> Any:
    front = tirx.if_then_else(place < 0, -place, place)
    return tirx.if_then_else(front >= size, 2 * size - 2 - front, front)


_PLACES: Final[Mapping[str, Any]] = {
    "edge": _edge,
    "reflect": _reflected,
    "wrap": tirx.floormod,
}
"""What is read where the result is beyond the image."""

RULES: Final = {"Pad": padded} | {
    kind: _fit(kind) for kind in ("AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool")
}
