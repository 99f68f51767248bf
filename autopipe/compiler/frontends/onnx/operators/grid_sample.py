"""GridSample and AffineGrid: an image sampled at computed coordinates."""

from collections.abc import Sequence
from typing import Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.place_limits import (
    Limits,
    PlaceRule,
    Shapes,
    list_but_last,
)
from autopipe.compiler.frontends.onnx.conversion.places import PlacesConverter
from autopipe.compiler.frontends.onnx.operator import Operator

# ruff: noqa: ARG001  TVM's converters have one signature

_IMAGE: Final = 2
"""The first spatial axis, after batch and channels."""
_FURTHEST: Final = 2**30
"""Maximum distance in pixels from the center of an image, within int32; others are clipped."""
_LONGEST: Final = 2**16
"""Assumed maximum of a dynamic side in pixels."""


def _limit_grid(
    bb: BlockBuilder, inputs: Inputs, shape: Sequence[Size], attr: Attributes, params: Parameters
) -> Inputs:
    """Clip the grid of an operator with normalized coordinates (-1 to 1 across the image)."""
    image, grid = inputs[:2]
    most = float(
        _FURTHEST // max(size if isinstance(size, int) else _LONGEST for size in shape[2:])
    )
    dtype = str(grid.ty.dtype)
    low = bb.normalize(relax.op.maximum(grid, relax.const(-most, dtype)))
    return [image, bb.normalize(relax.op.minimum(low, relax.const(most, dtype)))]


def _limit_places(shapes: Shapes, attr: Attributes) -> Limits:
    data, places = shapes
    return [(places[0], data[0]), *((1, size) for size in data[_IMAGE:])]


_GRID: Final = PlaceRule(_limit_places, list_but_last)


OPERATORS: Final = (
    Operator(name="AffineGrid", since=20, converter=onnx_frontend.AffineGrid),
    Operator(
        name="GridSample",
        since=22,
        places=_GRID,
        converter=PlacesConverter("GridSample", _GRID, onnx_frontend.GridSample, _limit_grid),
    ),
)
