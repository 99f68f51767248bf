"""RoiAlign as a tensor expression: regions of an image, each resampled to a fixed number of cells.

A cell is the mean of samples, or the largest weighted corner of one. A sample lies between four
pixels:

    y, x = start + cell * step + (sample + 0.5) * step / samples      # along each axis
    value = (1 - fy) * (1 - fx) * image[y0, x0] + ... + fy * fx * image[y0 + 1, x0 + 1]

The position of a sample, and the weights of its corners, are the same for all channels. So the
image has its channels last; the result has the cells of a channel contiguous, as in ONNX.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError
from tvm import te, tirx
from tvm.ir import Expr

from autopipe.config.frozen import Frozen

ATTRIBUTE: Final = "autopipe.regions"
"""Attribute of a PrimFunc that holds its form as JSON."""

MOST_SAMPLES: Final = 256
"""Most samples of a cell along an axis; each result takes their square."""

_MOST_COMPUTED: Final = 4096.0
"""Most samples of a cell along an axis if they are computed from the size of a region."""

_OPAQUE: Final = 8
"""TVM's pattern kind of a function that fuses with nothing."""

_IMAGE_AXES: Final = (1, 2)

Bind = Callable[[Expr], Expr]
"""Binds a value to a variable, so that it is computed once; or returns it unchanged."""


class RegionForm(Frozen, frozen=True):
    """The parameters of RoiAlign."""

    mode: Literal["avg", "max"]
    samples: Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
    """Samples of a cell along an axis; 0 for one per pixel."""
    scale: float
    """Pixels of the image per unit of a region."""
    half_pixel: bool
    """Whether the centre of the first pixel is 0.5; otherwise it is 0, and regions are at least one
    pixel large."""
    cells: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    """Cells of a region along height and width."""

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of a PrimFunc that computes it."""
        return {ATTRIBUTE: self.model_dump_json(), "op_pattern": _OPAQUE}


def parse_form(text: str) -> RegionForm | None:
    """Parse a form from JSON; None for other text."""
    try:
        return RegionForm.model_validate_json(text)
    except ValidationError:
        return None


def build_regions(
    form: RegionForm, data: te.Tensor, boxes: te.Tensor, images: te.Tensor
) -> te.Tensor:
    """Build the cells of regions [regions, channels, height, width] as a tensor expression.

    Args:
        form: The parameters of RoiAlign.
        data: Images [images, height, width, channels].
        boxes: Corners [regions, 4] of the regions: x, y, x, y.
        images: The image index [regions] of each, clamped to the number of images.
    """
    work = choose_compute_dtype(data.dtype)

    def at(region: Expr, channel: Expr, *cell: Expr) -> Expr:
        corners = [boxes[region, number] for number in range(4)]
        grid = SampleGrid.of(form, data.shape, corners, _keep_value, work)
        image = clamp_image_index(images, region, data.shape[0])
        steps = [
            te.reduce_axis((_make_like(grid.loops[axis], 0), grid.loops[axis]), f"sample{axis}")
            for axis in range(2)
        ]
        places = [grid.place(axis, cell[axis], steps[axis], _keep_value) for axis in range(2)]
        values = [
            data[image, y, x, channel].astype(work) * share
            for y, x, share in list_corners(places, _keep_value)
        ]
        inside = tirx.all(*(place.inside for place in places))
        zero = tirx.const(0, work)
        if form.mode == "max":
            largest = functools.reduce(tirx.max, values)
            return te.max(tirx.if_then_else(inside, largest, zero), axis=steps)
        mean = sum(values[1:], values[0]) / grid.count
        return te.sum(tirx.if_then_else(inside, mean, zero), axis=steps)

    shape = [boxes.shape[0], data.shape[3], *form.cells]
    regions = te.compute(shape, at, name="regions")
    if work == data.dtype:
        return regions
    return te.compute(shape, lambda *place: regions[place].astype(data.dtype), name="narrowed")


def choose_compute_dtype(dtype: str) -> str:
    """Return the dtype of the computation: float64 for float64, otherwise float32."""
    return "float64" if str(dtype) == "float64" else "float32"


def clamp_image_index(images: te.Tensor | Expr, region: Expr, count: Expr) -> Expr:
    """Return the image index of a region, clamped to the number of images."""
    wide = "int64"
    image = images[region].astype(wide)
    last = tirx.Cast(wide, count) - tirx.const(1, wide)
    return tirx.max(tirx.min(image, last), tirx.const(0, wide)).astype("int32")


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """The position of a sample along an axis, between two pixels."""

    low: Expr
    high: Expr
    part: Expr
    """The interpolation weight of the second pixel, from 0 to 1."""
    inside: Expr
    """Whether it is in the image or at most a pixel outside."""


@dataclass(frozen=True, slots=True)
class SampleGrid:
    """The samples of a region along each axis."""

    extents: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    steps: tuple[Expr, ...]
    """Size of a cell in pixels."""
    loops: tuple[Expr, ...]
    """Samples of a cell, at least 1."""
    some: tuple[Expr | bool, ...]
    """Whether there are samples."""
    count: Expr
    """Samples of a cell along both axes."""
    work: str

    @classmethod
    def of(
        cls, form: RegionForm, shape: Sequence[Expr], corners: Sequence[Expr], bind: Bind, work: str
    ) -> "SampleGrid":
        """Compute the sample grid of a region from its corners and the shape of images."""
        starts, steps, loops = list[Expr](), list[Expr](), list[Expr]()
        some: list[Expr | bool] = []
        for axis in range(2):
            ends = (corners[number - axis].astype(work) for number in (1, 3))
            offset = tirx.const(0.5 if form.half_pixel else 0.0, work)
            start, end = (place * tirx.const(form.scale, work) - offset for place in ends)
            start = bind(start)
            size = end - start
            size = size if form.half_pixel else tirx.max(size, tirx.const(1, work))
            step = bind(size / tirx.const(form.cells[axis], work))
            starts.append(start)
            steps.append(step)
            if form.samples:
                loops.append(tirx.const(form.samples, "int32"))
                some.append(True)
                continue
            # NaN is smaller than all numbers here
            number = tirx.min(
                tirx.max(tirx.ceil(step), tirx.const(0, work)), _make_cell_limit(work)
            )
            number = bind(number.astype("int32"))
            loops.append(bind(tirx.max(number, tirx.const(1, "int32"))))
            some.append(number > 0)
        count = bind((loops[0] * loops[1]).astype(work))
        extents = tuple(shape[axis] for axis in _IMAGE_AXES)
        return cls(extents, tuple(starts), tuple(steps), tuple(loops), tuple(some), count, work)

    def place(self, axis: int, cell: Expr, sample: Expr | tirx.IterVar, bind: Bind) -> SamplePlace:
        """Compute the position of a sample of a cell along an axis."""
        work, extent = self.work, self.extents[axis]
        step = self.steps[axis]
        within = (
            (sample.astype(work) + tirx.const(0.5, work)) * step / self.loops[axis].astype(work)
        )
        real = bind(self.starts[axis] + cell.astype(work) * step + within)
        inside = tirx.all(
            real >= tirx.const(-1, work), real <= tirx.Cast(work, extent),
            *([] if self.some[axis] is True else [self.some[axis]]),
        )  # fmt: skip
        last = tirx.Cast(work, extent - 1)
        position = bind(tirx.min(tirx.max(real, tirx.const(0, work)), last))
        floor = bind(tirx.floor(position))
        low = bind(floor.astype("int32"))
        high = bind(tirx.min(low + 1, tirx.Cast("int32", extent - 1)))
        return SamplePlace(low, high, bind(position - floor), inside)


def list_corners(places: Sequence[SamplePlace], bind: Bind) -> list[tuple[Expr, Expr, Expr]]:
    """List the four pixels around a sample as (row, column, weight)."""
    ends = [((p.low, 1 - p.part), (p.high, p.part)) for p in places]
    return [(y, x, bind(down * across)) for y, down in ends[0] for x, across in ends[1]]


def _keep_value(value: Expr) -> Expr:
    return value


def _make_like(value: Expr, number: int) -> Expr:
    return tirx.const(number, value.ty.dtype)


def _make_cell_limit(work: str) -> Expr:
    return tirx.const(_MOST_COMPUTED, work)
