"""The matrices of minimal filtering of 3x3 convolutions, by the size of a tile.

A matrix product with one of them is unrolled to sums. Rows share sums of some columns, the
*groups*, so that each is computed once. `filtering` describes the algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Matrix = Sequence[Sequence[float]]
"""Rows of numbers."""


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices for one size of tile."""

    input: Matrix
    """B^T: [size + 2, size + 2]."""
    kernel: Matrix
    """G: [size + 2, 3]."""
    output: Matrix
    """A^T: [size, size + 2]."""
    terms: tuple[tuple[int, ...], ...]
    """Groups of columns of `input`. Rows share the sum of a group, so it is computed once."""
    sums: tuple[tuple[int, ...], ...]
    """Groups of columns of `output`, likewise."""


TRANSFORMS: Final = {
    2: Transforms(
        input=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        kernel=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        output=((1, 1, 1, 0), (0, 1, -1, -1)),
        terms=((0,), (1,), (2,), (3,)),
        sums=((0,), (1, 2), (3,)),
    ),
    4: Transforms(
        input=(
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        kernel=(
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        output=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
        terms=((0,), (4, 2), (3, 1), (5,)),
        sums=((0,), (1, 2), (3, 4), (5,)),
    ),
    6: Transforms(
        input=(
            (1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0),
            (0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0),
            (0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0),
            (0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0),
            (0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0),
            (0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0),
            (0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0),
            (0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1),
        ),
        kernel=(
            (1, 0, 0),
            (-2 / 9, -2 / 9, -2 / 9),
            (-2 / 9, 2 / 9, -2 / 9),
            (1 / 90, 1 / 45, 2 / 45),
            (1 / 90, -1 / 45, 2 / 45),
            (32 / 45, 16 / 45, 8 / 45),
            (32 / 45, -16 / 45, 8 / 45),
            (0, 0, 1),
        ),
        output=(
            (1, 1, 1, 1, 1, 1, 1, 0),
            (0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0),
            (0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0),
            (0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0),
            (0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0),
            (0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1),
        ),
        terms=((0,), (6, 4, 2), (5, 3, 1), (7,)),
        sums=((0,), (1, 2), (3, 4), (5, 6), (7,)),
    ),
}
"""The matrices, by the rows and columns of a tile."""
