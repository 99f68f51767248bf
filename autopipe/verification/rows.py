"""Compare the rows that a model selects, such as boxes, with those of its reference.

The selection and its order depend on scores that may differ by less than their rounding: two
correct programs may then select other rows, or another order. So where rows do not agree one by
one, the rows that do not match in order are counted, and the same for the reference itself on
slightly perturbed inputs. A build may have no more of them.

Example: rows A B C D of the reference and A C B E of the build have A and B in common in the same
order, or A and C: two of four are elsewhere.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from autopipe.artifacts.verification import Tolerance

_MOST: Final = 2**28
"""Upper bound of the pairs of elements that are compared."""

Outputs = Mapping[str, np.ndarray]


def drop_unit_batch_axes(
    outputs: Outputs, shapes: Mapping[str, Sequence[int]]
) -> dict[str, np.ndarray]:
    """Drop leading batch axes of extent one, so that the first axis of each output counts rows.

    `shapes` are those of the model, -1 for a data-dependent size.
    """
    reshaped_outputs = {}
    for name, array in outputs.items():
        batch = 0
        while batch < array.ndim - 1 and shapes[name][batch : batch + 1] == (1,):
            batch += 1
        reshaped_outputs[name] = array.reshape(array.shape[batch:])
    return reshaped_outputs


def count_unmatched_rows(
    ours: Outputs, theirs: Outputs, names: Sequence[str], tolerances: Mapping[str, Tolerance]
) -> int | None:
    """Count the rows of some outputs that do not match in order.

    All of these outputs have the same number of rows. None if there are too many to compare, or
    their shapes or dtypes differ.
    """
    pairs = [(ours[name], theirs[name], tolerances[name]) for name in names]
    if any(a.shape[1:] != b.shape[1:] or a.dtype != b.dtype for a, b, _ in pairs):
        return None
    counts = {(len(a), len(b)) for a, b, _ in pairs}
    if len(counts) != 1:
        return None
    ((mine, expected_count),) = counts
    if mine * sum(b.size for _, b, _ in pairs) > _MOST:
        return None
    matches = np.ones((mine, expected_count), bool)
    for a, b, tolerance in pairs:
        width = math.prod(b.shape[1:])
        matches &= _match_rows(a.reshape(mine, width), b.reshape(expected_count, width), tolerance)
    return max(mine, expected_count) - _count_common_rows(matches)


def group_by_row_count(outputs: Outputs) -> Iterator[list[str]]:
    """Group the names of outputs by their number of rows."""
    lengths: dict[int, list[str]] = {}
    for name, array in outputs.items():
        if array.ndim:
            lengths.setdefault(len(array), []).append(name)
    yield from lengths.values()


def _match_rows(ours: np.ndarray, theirs: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Compute which rows match: bool[ours, theirs]."""
    matches = np.empty((len(ours), len(theirs)), bool)
    wide = theirs.astype(np.float64)
    limit = tolerance.atol + tolerance.rtol * np.abs(wide)
    with np.errstate(all="ignore"):
        for place, row in enumerate(ours):
            equal = (np.abs(row.astype(np.float64) - wide) <= limit) | (row == theirs)
            matches[place] = (equal | (np.isnan(row) & np.isnan(wide))).all(axis=1)
    return matches


def _count_common_rows(matches: np.ndarray) -> int:
    """Return the length of the longest common subsequence of two sequences of rows."""
    best = np.zeros(matches.shape[1] + 1, np.int64)
    for row in matches:
        one_more = np.where(row, best[:-1] + 1, best[1:])
        best[1:] = np.maximum.accumulate(np.maximum(one_more, best[1:]))
    return int(best[-1])
