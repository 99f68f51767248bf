"""One axis of a Resize of dynamic sizes, and the coordinates that its elements are taken from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tvm import tirx
from tvm.ir import Expr
from tvm.sym import Analyzer

from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, as_integer

_MOST_REPEATS: Final = 16
"""Largest scale of which the coordinates are compared with repeated elements."""
_REPEATED: Final = 5
"""Elements that are compared."""


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """The resizing of one axis; `up / down` is its scale."""

    axis: int
    before: Size
    after: Size
    up: Size
    down: Size


Place = Callable[[OpenAxis, Expr], tuple[Expr, Expr]]
"""Input coordinate of a result's element, as numerator and denominator."""

Rounding = Callable[[Expr, Expr], Expr]
"""Rounds a coordinate, given as numerator and denominator."""


def clip_place(place: Expr, size: Size) -> Expr:
    """Clip a coordinate to the elements of an axis."""
    return tirx.max(tirx.min(place, as_int64(size - 1)), as_integer(0))


def _find_asymmetric_place(axis: OpenAxis, index: Expr) -> tuple[Expr, Expr]:
    return index * axis.down, as_int64(axis.up)


def _find_half_pixel(axis: OpenAxis, index: Expr) -> tuple[Expr, Expr]:
    return (index * 2 + 1) * axis.down - axis.up, as_int64(axis.up * 2)


def _find_pytorch_place(axis: OpenAxis, index: Expr) -> tuple[Expr, Expr]:
    number, over = _find_half_pixel(axis, index)
    return tirx.Select(as_int64(axis.after) > 1, number, as_integer(0)), over


def _align_corners(axis: OpenAxis, index: Expr) -> tuple[Expr, Expr]:
    return index * (axis.before - 1), tirx.max(as_int64(axis.after - 1), as_integer(1))


PLACES: Final[Mapping[str, Place]] = {
    "asymmetric": _find_asymmetric_place,
    "half_pixel": _find_half_pixel,
    "pytorch_half_pixel": _find_pytorch_place,
    "align_corners": _align_corners,
}

ROUNDINGS: Final[Mapping[str, Rounding]] = {
    "floor": tirx.floordiv,
    "ceil": lambda number, over: tirx.floordiv(number + over - 1, over),
    "round_prefer_floor": lambda number, over: tirx.floordiv(number * 2 + over - 1, over * 2),
    "round_prefer_ceil": lambda number, over: tirx.floordiv(number * 2 + over, over * 2),
}


def repeats_elements(axis: OpenAxis, place: Place, rounding: Rounding) -> bool:
    """Tell whether the nearest neighbours along an axis are its elements, each `up` times.

    The coordinates of one image are compared: those of the others follow, since a place depends on
    the sizes only where it aligns corners.
    """
    if axis.down != 1 or not isinstance(axis.up, int) or axis.up > _MOST_REPEATS:
        return False
    if place is _align_corners:
        return False
    count = _REPEATED * axis.up
    number_axis = OpenAxis(axis.axis, *map(as_integer, (_REPEATED, count, axis.up, 1)))
    analyzer = Analyzer()
    nearest = [
        clip_place(rounding(*place(number_axis, as_integer(index))), number_axis.before)
        for index in range(count)
    ]
    return all(
        int(analyzer.simplify(found)) == index // axis.up for index, found in enumerate(nearest)
    )
