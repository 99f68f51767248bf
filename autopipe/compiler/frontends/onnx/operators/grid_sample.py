"""GridSample and AffineGrid: an image sampled at computed coordinates."""

from collections.abc import Sequence
from typing import Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Inputs, Size
from autopipe.compiler.frontends.onnx.conversion.place_limits import (
    Limits,
    PlaceRule,
    Shapes,
    list_but_last,
)
from autopipe.compiler.frontends.onnx.conversion.places import clip_before
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator

_IMAGE: Final = 2
"""The first spatial axis, after batch and channels."""
_FURTHEST: Final = 2**30
"""Maximum distance in pixels from the center of an image, within int32; others are clipped."""
_LONGEST: Final = 2**16
"""Assumed maximum of a dynamic side in pixels."""


def _clip_grid(site: NodeSite, shape: Sequence[Size]) -> Inputs:
    """Clip the grid of an operator with normalized coordinates (-1 to 1 across the image)."""
    image, grid = site.inputs[:2]
    longest = max(size if isinstance(size, int) else _LONGEST for size in shape[2:])
    most, dtype = float(_FURTHEST // longest), str(grid.ty.dtype)
    low = site.bb.normalize(relax.op.maximum(grid, relax.const(-most, dtype)))
    return [image, site.bb.normalize(relax.op.minimum(low, relax.const(most, dtype)))]


def _limit_places(shapes: Shapes, attr: Attributes) -> Limits:  # noqa: ARG001
    data, places = shapes
    return [(places[0], data[0]), *((1, size) for size in data[_IMAGE:])]


_GRID: Final = PlaceRule(_limit_places, list_but_last)


OPERATORS: Final = (
    Operator(name="AffineGrid", since=20),
    Operator(
        name="GridSample",
        since=22,
        places=_GRID,
        converter=clip_before(onnx_frontend.GridSample, _clip_grid),
    ),
)
