"""Rows that a model chooses, compared with those that its reference chooses.

Which boxes are left, and in which order, hangs on scores that differ by less than their rounding:
two right programs may then leave others, or leave them in another order. So where rows do not
agree one by one, it is counted how many are not there in their order, and the same is counted
of the reference itself, its inputs moved by a hair. A build may have no more of them.

Example: rows A B C D of the reference and A C B E of the build have A and B in common in the same
order, or A and C: two of four are elsewhere.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from autopipe.artifacts.verification import Tolerance

_MOST: Final = 2**28
"""Pairs of elements that are compared."""

Outputs = Mapping[str, np.ndarray]


def drop_unit_batch_axes(
    outputs: Outputs, shapes: Mapping[str, Sequence[int]]
) -> dict[str, np.ndarray]:
    """Return outputs whose first axes count rows: a batch that is always one is left away.

    `shapes` are those of the model, -1 where a size is known only when it runs.
    """
    found = {}
    for name, array in outputs.items():
        batch = 0
        while batch < array.ndim - 1 and shapes[name][batch : batch + 1] == (1,):
            batch += 1
        found[name] = array.reshape(array.shape[batch:])
    return found


def count_unmatched_rows(
    ours: Outputs, theirs: Outputs, names: Sequence[str], allowed: Mapping[str, Tolerance]
) -> int | None:
    """Return how many rows of some outputs are not the same in the same order.

    All of these outputs have as many rows as each other. None where there are too many to compare,
    or they are no rows of the same kind.
    """
    pairs = [(ours[name], theirs[name], allowed[name]) for name in names]
    if any(a.shape[1:] != b.shape[1:] or a.dtype != b.dtype for a, b, _ in pairs):
        return None
    counts = {(len(a), len(b)) for a, b, _ in pairs}
    if len(counts) != 1:
        return None
    ((mine, wanted),) = counts
    if mine * sum(b.size for _, b, _ in pairs) > _MOST:
        return None
    same = np.ones((mine, wanted), bool)
    for a, b, tolerance in pairs:
        width = math.prod(b.shape[1:])
        same &= _match_rows(a.reshape(mine, width), b.reshape(wanted, width), tolerance)
    return max(mine, wanted) - _count_common_rows(same)


def group_by_row_count(outputs: Outputs) -> Iterator[list[str]]:
    """Yield the names of outputs that have as many rows as each other."""
    lengths: dict[int, list[str]] = {}
    for name, array in outputs.items():
        if array.ndim:
            lengths.setdefault(len(array), []).append(name)
    yield from lengths.values()


def _match_rows(ours: np.ndarray, theirs: np.ndarray, allowed: Tolerance) -> np.ndarray:
    """Return which rows agree with which: [ours, theirs]."""
    found = np.empty((len(ours), len(theirs)), bool)
    wide = theirs.astype(np.float64)
    limit = allowed.atol + allowed.rtol * np.abs(wide)
    with np.errstate(all="ignore"):
        for place, row in enumerate(ours):
            same = (np.abs(row.astype(np.float64) - wide) <= limit) | (row == theirs)
            found[place] = (same | (np.isnan(row) & np.isnan(wide))).all(axis=1)
    return found


def _count_common_rows(same: np.ndarray) -> int:
    """Return the length of the longest part that two sequences of rows have in the same order."""
    best = np.zeros(same.shape[1] + 1, np.int64)
    for row in same:
        one_more = np.where(row, best[:-1] + 1, best[1:])
        best[1:] = np.maximum.accumulate(np.maximum(one_more, best[1:]))
    return int(best[-1])
