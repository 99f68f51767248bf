"""Winograd's minimal filtering of 3x3 convolutions, as tensor expressions.

After "Fast Algorithms for Convolutional Neural Networks" (Lavin and Gray, arXiv:1509.09308, 2015;
CVPR 2016), in its notation: Y = A^T [(G g G^T) * (B^T d B)] A, where `*` multiplies element by
element, for one input and one output channel:

                     F(2x2, 3x3)    F(4x4, 3x3)    F(6x6, 3x3)
    d  patch         4 x 4          6 x 6          8 x 8         neighbours overlap by 2
    g  kernel        3 x 3          3 x 3          3 x 3
    B^T              4 x 4          6 x 6          8 x 8
    G                4 x 3          6 x 3          8 x 3
    A^T              2 x 4          4 x 6          6 x 8
    Y  outputs       2 x 2          4 x 4          6 x 6
    products         16             36             64            direct: 36, 144 and 324

A volume is computed slice by slice: the channels of all slices that a kernel spans are concatenated
to one axis of input channels.

With many channels, the products at one position (i, j) of all tiles are a matrix product:

    winograd_patch   [tile, i, j, channel in]         patches of the padded image
    winograd_rows, winograd_input                     B^T d B: [i, j, tile, channel in]
    winograd_kernel                                   G g G^T: [i, j, channel in, channel out]
    winograd_product [i, j, tile, channel out]        the sum over the input channels
    winograd_columns, winograd_tile                   A^T m A: [tile, row, column, channel out]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import te, tirx

from autopipe.compiler.graph.weights import MARK
from autopipe.schedules.analysis.blocks import Extent, parts_of, product_of, simplify_extent
from autopipe.schedules.implementations.transforms import TRANSFORMS, Matrix, Transforms

KERNEL: Final = 3
"""Rows and columns of the kernel."""

_IMAGE_AXES: Final = 4
"""Number of axes of the kernel of an image; that of a volume has one more."""

_MIN_TILES, _MAX_TILES = 6, 14
"""Minimum and maximum of the tiles with sums in registers."""

Value = Callable[[int], Any]
"""Returns the element of a vector at an index, as an expression."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The partition of an output into tiles; the last tiles of a row or column may overhang.

    Example: an output [1, 14, 14, 256] in tiles of 4 x 4 has `rows` 4, `columns` 4 and `count` 16;
    the last tiles overhang by 2.
    """

    size: int
    """Rows and columns of a tile."""
    rows: Extent
    """Number of tiles along the height of an image."""
    columns: Extent
    """Number of tiles along the width of an image."""
    count: Extent
    """Number of tiles of all images."""
    block: int
    """Tiles in a block; the last block is padded with further tiles."""
    apart: tuple[int, int] = (1, 1)
    """Distance of neighbouring rows, and columns, of a tile: the dilation of the convolution."""

    @classmethod
    def of(
        cls, shape: Sequence[Extent], size: int, apart: tuple[int, int] = (1, 1),
        likely: "Tiling | None" = None,
    ) -> "Tiling":  # fmt: skip
        """Return the tiling of an output `[batch, rows, columns, channels]`.

        A block has 6 to 14 tiles, for minimum padding. With dynamic shapes, it has the size of
        that of `likely`, the tiling at specialized sizes.
        """
        batch, height, width, _ = shape
        rows, columns = (
            simplify_extent(parts_of(parts_of(extent, step), size) * step)
            for extent, step in zip((height, width), apart, strict=True)
        )
        count = simplify_extent(product_of((batch, rows, columns)))
        if not isinstance(count, int):
            return cls(size, rows, columns, count, likely.block if likely else _MAX_TILES, apart)
        blocks = [b for b in range(_MAX_TILES, _MIN_TILES - 1, -1) if b <= count] or [count]
        block = min(blocks, key=lambda b: parts_of(count, b) * b)
        return cls(size, rows, columns, count, block, apart)

    @property
    def padded(self) -> Extent:
        """The count, rounded up to whole blocks."""
        return parts_of(self.count, self.block) * self.block

    @property
    def fills(self) -> bool:
        """Tell whether the last block may be padded."""
        return not isinstance(self.count, int) or self.count % self.block > 0

    def origin(self, tile: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 - an index
        """Return the image of a tile, and the first row and column of the output in it.

        Example: with 14 tiles of 4 x 4 in a row, tile 20 begins at row 4, column 24 of image 0.
        With dilation 2, it begins at row 1: tile 0 has rows 0, 2, 4 and 6, tile 14 those between
        them.
        """
        starts = []
        places = tile // self.columns % self.rows, tile % self.columns
        for place, step in zip(places, self.apart, strict=True):
            starts.append(place % step + place // step * (self.size * step))
        return tile // (self.rows * self.columns), starts[0], starts[1]


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a volume that a kernel spans."""

    taps: int
    """Number of slices of the kernel."""
    results: int
    """Number of slices of the result of one volume."""
    front: int
    """Slices of zero padding before the volume."""
    apart: int
    """The dilation along the slices."""


def build_convolution(
    data: te.Tensor, kernel: te.Tensor, padding: tuple[int, int], tiling: Tiling,
    slices: Slices | None = None,
) -> te.Tensor:  # fmt: skip
    """Build the convolution `[tile, row, column, channel]` of an NHWC image and HWIO kernel.

    For an NDHWC volume and a DHWIO kernel, the images of `tiling` are the slices of the result.
    """
    matrices, side = TRANSFORMS[tiling.size], tiling.size + KERNEL - 1
    transformed_input = _transform_input(_build_patches(data, padding, tiling, slices), matrices)
    weights = _transform_kernel(kernel, matrices)
    channel = te.reduce_axis((0, weights.shape[2]), "channel_in")
    sums = te.compute(
        (side, side, tiling.padded, kernel.shape[-1]),
        lambda i, j, p, c: te.sum(
            transformed_input[i, j, p, channel] * weights[i, j, channel, c], axis=channel
        ),
        name="winograd_product",
    )
    return _transform_output(sums, matrices)


def _build_patches(
    data: te.Tensor, padding: tuple[int, int], tiling: Tiling, slices: Slices | None
) -> te.Tensor:
    """Extract the input patch of each tile; zero outside the image."""
    *_, height, width, channels = data.shape
    (top, left), (row_step, column_step) = padding, tiling.apart
    side = tiling.size + KERNEL - 1

    def element(p: Any, i: Any, j: Any, c: Any) -> Any:  # noqa: ANN401 - indices
        image, row, column = tiling.origin(p)
        y, x = row + i * row_step - top, column + j * column_step - left
        conditions, outer_indices = [y >= 0, y < height, x >= 0, x < width], [image]
        if slices is not None:
            z = image % slices.results + c // channels * slices.apart - slices.front
            conditions, outer_indices = (
                [z >= 0, z < data.shape[1], *conditions],
                [image // slices.results, z],
            )
            c %= channels
        if tiling.fills:
            conditions = [p < tiling.count, *conditions]
        inside = tirx.all(*conditions)
        return tirx.if_then_else(inside, data[(*outer_indices, y, x, c)], tirx.const(0, data.dtype))

    inputs = channels * slices.taps if slices else channels
    return te.compute((tiling.padded, side, side, inputs), element, name="winograd_patch")


def _transform_input(patches: te.Tensor, matrices: Transforms) -> te.Tensor:
    """Compute B^T d B: the columns of the patches are transformed first, then their rows."""
    count, side, _, channels = patches.shape
    rows = te.compute(
        (count, side, side, channels),
        lambda p, i, j, c: _multiply_row(
            matrices.input, matrices.terms, i, lambda k: patches[p, k, j, c]
        ),
        name="winograd_rows",
    )
    return te.compute(
        (side, side, count, channels),
        lambda i, j, p, c: _multiply_row(
            matrices.input, matrices.terms, j, lambda k: rows[p, i, k, c]
        ),
        name="winograd_input",
    )


def _transform_kernel(kernel: te.Tensor, matrices: Transforms) -> te.Tensor:
    """Compute G g G^T, in one block, because the build extracts single blocks."""
    side = len(matrices.kernel)

    def element(i: Any, j: Any, channel: Any, c: Any) -> Any:  # noqa: ANN401 - indices
        ys, xs = (
            [_select_value([row[k] for row in matrices.kernel], axis) for k in range(KERNEL)]
            for axis in (i, j)
        )
        outer_indices, place = [], channel
        if len(kernel.shape) > _IMAGE_AXES:
            outer_indices, place = [channel // kernel.shape[-2]], channel % kernel.shape[-2]
        return sum(
            ys[k] * xs[m] * kernel[(*outer_indices, k, m, place, c)]
            for k in range(KERNEL)
            for m in range(KERNEL)
        )

    inputs = product_of([int(extent) for extent in (*kernel.shape[:-4], kernel.shape[-2])])
    shape = (side, side, inputs, kernel.shape[-1])
    return te.compute(shape, element, name="winograd_kernel", attrs={MARK: True})


def _transform_output(sums: te.Tensor, matrices: Transforms) -> te.Tensor:
    """Compute A^T m A, the outputs of a tile from its sums m, columns first."""
    side, _, count, channels = sums.shape
    size = len(matrices.output)
    rows = te.compute(
        (count, size, side, channels),
        lambda p, i, j, c: _multiply_row(
            matrices.output, matrices.sums, i, lambda k: sums[k, j, p, c]
        ),
        name="winograd_columns",
    )
    return te.compute(
        (count, size, size, channels),
        lambda p, i, j, c: _multiply_row(
            matrices.output, matrices.sums, j, lambda k: rows[p, i, k, c]
        ),
        name="winograd_tile",
    )


def _multiply_row(matrix: Matrix, groups: Sequence[Sequence[int]], index: Any, value: Value) -> Any:  # noqa: ANN401 - expressions
    """Return the product of a vector and the row of a matrix at an index."""
    return _select_value([_sum_groups(row, groups, value) for row in matrix], index)


def _select_value(values: Sequence[Any], index: Any) -> Any:  # noqa: ANN401 - expressions
    """Return the value at an index, as a chain of selects.

    Once the loop over the index is unrolled, the selects fold to one value.
    """
    *earlier_values, last = [
        tirx.const(v, "float32") if isinstance(v, (int, float)) else v for v in values
    ]
    for position, value in reversed(list(enumerate(earlier_values))):
        last = tirx.Select(index == position, value, last)
    return last


def _sum_groups(row: Sequence[float], groups: Sequence[Sequence[int]], value: Value) -> Any:  # noqa: ANN401 - expressions
    """Return the product of a row and a vector, summed group by group.

    The sums of groups are common subexpressions of the rows, up to a factor. Example: the rows
    (0, -4, -4, 1, 1, 0) and (0, 4, -4, -1, 1, 0) with the groups (4, 2) and (3, 1) become
    (v4 - 4 v2) + (v3 - 4 v1) and (v4 - 4 v2) - (v3 - 4 v1).
    """
    total = None
    for group in groups:
        columns = [k for k in group if row[k]]
        if not columns:
            continue
        first = min(columns, key=lambda k: abs(row[k]))
        columns = [first, *(k for k in columns if k != first)]
        inner = _add_terms([(row[k] / row[first], value(k)) for k in columns])
        total = _add_terms([(row[first], inner)], total)
    return total


def _add_terms(terms: Sequence[tuple[float, Any]], total: Any = None) -> Any:  # noqa: ANN401 - expressions
    """Return `total` plus each value times its factor, without products by 1 and -1."""
    for factor, value in terms:
        if total is None:
            total = value if factor == 1 else value * tirx.const(factor, "float32")
        elif abs(factor) == 1:
            total = total + value if factor > 0 else total - value
        else:
            total = total + value * tirx.const(factor, "float32")
    return total
