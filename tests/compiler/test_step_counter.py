"""Steps of the compiler are counted by whatever is installed, and by nothing otherwise."""

import pytest

from autopipe.compiler.step_counter import count_bytes, count_each, count_with, join_counts
from autopipe.host.copy_file import MIB


@pytest.fixture
def counts():
    return []


@pytest.fixture
def counter(counts):
    return lambda message, total, *, is_even: lambda done: counts.append((message, done, total))


def test_items_are_counted_before_each_is_done(counts, counter):
    with count_with(counter):
        assert list(count_each("passes run", "ab")) == ["a", "b"]
    assert counts == [("passes run", 0, 2), ("passes run", 1, 2)]


def test_without_a_counter_items_are_yielded_all_the_same(counts, counter):
    with count_with(counter):
        pass
    assert list(count_each("passes run", "ab")) == ["a", "b"]
    assert counts == []


def test_equal_lists_are_counted_as_one(counts, counter):
    with count_with(counter), join_counts(3):
        for _ in range(3):
            list(count_each("passes run", "ab"))
    assert counts == [("passes run", done, 6) for done in range(6)]


def test_bytes_are_counted_in_mebibytes_of_all_passes(counts, counter):
    with count_with(counter):
        report = count_bytes("MiB packed", 5 * MIB // 2, passes=2)
        for part in (MIB, 3 * MIB, MIB):
            report(part)
    assert counts == [("MiB packed", done, 2) for done in (0, 2, 2)]
