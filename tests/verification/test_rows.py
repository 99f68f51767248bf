"""Rows that a model chooses: which of them are in the same order."""

import itertools

import numpy as np

from autopipe.artifacts.verification import Tolerance
from autopipe.verification.rows import (
    count_unmatched_rows,
    drop_unit_batch_axes,
    group_by_row_count,
)
from tests.support.table import each_row

FINE = {"y": Tolerance(rtol=0, atol=0.1), "label": Tolerance(rtol=0, atol=0)}


def letters(text):
    return {"y": np.array([ord(letter) for letter in text], float)}


@each_row(
    "ours, theirs, count",
    [
        ("abcd", "abcd", 0),
        ("acbe", "abcd", 2),
        ("ba", "ab", 1),
        ("abc", "abcd", 1),
        ("abcd", "", 4),
        ("", "", 0),
        ("dcba", "abcd", 3),
    ],
)
def test_rows_that_are_not_in_order_are_counted(ours, theirs, count):
    assert count_unmatched_rows(letters(ours), letters(theirs), ["y"], FINE) == count


def test_the_longest_common_order_is_found():
    def longest(a, b):
        parts = (
            set(itertools.combinations(text, n)) for text in (a, b) for n in range(len(text) + 1)
        )
        sizes = {part for part in itertools.chain(*parts) if all(_within(part, t) for t in (a, b))}
        return max(map(len, sizes))

    random = np.random.default_rng(0)
    for _ in range(60):
        a, b = ("".join(random.choice(list("abc"), random.integers(1, 7))) for _ in range(2))
        expected = max(len(a), len(b)) - longest(a, b)
        assert count_unmatched_rows(letters(a), letters(b), ["y"], FINE) == expected, (a, b)


def _within(part, text):
    letters = iter(text)
    return all(letter in letters for letter in part)


def test_a_row_is_what_all_outputs_have_at_its_place():
    boxes = np.arange(12.0).reshape(3, 4)
    theirs = {"y": boxes, "label": np.array([1, 2, 3])}
    assert (
        count_unmatched_rows(
            {"y": boxes + 0.05, "label": theirs["label"]}, theirs, ["y", "label"], FINE
        )
        == 0
    )
    assert (
        count_unmatched_rows(
            {"y": boxes, "label": np.array([1, 9, 3])}, theirs, ["y", "label"], FINE
        )
        == 1
    )
    assert count_unmatched_rows({"y": boxes[:, :3]}, theirs, ["y"], FINE) is None
    batch = drop_unit_batch_axes({"y": boxes[None]}, {"y": (1, -1, 4)})
    assert count_unmatched_rows(batch, theirs, ["y"], FINE) == 0
    single = drop_unit_batch_axes({"y": boxes[:1]}, {"y": (-1, 4)})
    assert (
        count_unmatched_rows(
            single, drop_unit_batch_axes(theirs, {"y": (-1, 4), "label": (-1,)}), ["y"], FINE
        )
        == 2
    )
    assert list(group_by_row_count({**theirs, "all": np.zeros(7), "one": np.zeros(())})) == [
        ["y", "label"],
        ["all"],
    ]
