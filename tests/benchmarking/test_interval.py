import random
from math import exp, log

import pytest

from autopipe.benchmarking.interval import _STUDENT, Interval, estimate_paired_ratio, estimate_ratio


def scipy_stats():
    """Import what takes a second where it is used: each process of tests imports all files."""
    from scipy import stats  # type: ignore[import-untyped]

    return stats


def test_the_table_is_students():
    stats = scipy_stats()
    found = [round(float(stats.t.ppf(0.975, freedom)), 3) for freedom in range(1, 31)]
    assert list(_STUDENT) == found


def test_a_ratio_is_that_of_geometric_means():
    found = estimate_ratio([2.0, 8.0, 4.0], [1.0, 4.0, 2.0])
    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert found.low < found.ratio < found.high
    assert found.low * found.high == pytest.approx(4.0)


def test_swapping_the_series_turns_the_ratio_over():
    here = estimate_ratio([1.0, 1.1, 1.3], [2.0, 2.5, 2.1, 2.2])
    there = estimate_ratio([2.0, 2.5, 2.1, 2.2], [1.0, 1.1, 1.3])
    assert here is not None
    assert there is not None
    assert (here.ratio, here.low, here.high) == pytest.approx(
        (1 / there.ratio, 1 / there.high, 1 / there.low)
    )


@pytest.mark.parametrize("counts", [(3, 3), (3, 8), (5, 4)])
def test_the_interval_is_welchs(counts):
    noise = random.Random(counts[0])
    now, before = ([exp(noise.gauss(0, 0.1 * (n + 1))) for _ in range(counts[n])] for n in (0, 1))
    found = estimate_ratio(now, before)
    assert found is not None
    logarithms = [[log(value) for value in series] for series in (now, before)]
    whole = scipy_stats().ttest_ind(*logarithms, equal_var=False).confidence_interval(0.95)
    ours = (found.high / found.low) / exp(whole.high - whole.low)
    assert 1 <= ours < 1.5  # its degrees of freedom are rounded down, so it is never narrower


def test_times_that_are_all_equal_have_no_spread():
    found = estimate_ratio([3.0] * 3, [2.0] * 3)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize("counts", [(1, 5), (5, 1), (1, 1)])
def test_one_round_says_nothing_of_its_spread(counts):
    assert estimate_ratio([1.0] * counts[0], [1.0] * counts[1]) is None


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_the_interval_holds_the_ratio_as_often_as_it_says(rounds):
    noise = random.Random(rounds)

    def series():
        return [exp(noise.gauss(0, 0.05)) for _ in range(rounds)]

    found = [estimate_ratio(series(), series()) for _ in range(2000)]
    held = sum(each is not None and each.low <= 1 <= each.high for each in found)
    assert 0.94 <= held / len(found) <= 0.99


def test_pairs_are_compared_by_the_sign_test():
    before = [1.0 + place / 10 for place in range(12)]
    now = [value * (0.8 + place / 100) for place, value in enumerate(before)]
    found = estimate_paired_ratio(now, before, 0.99)
    assert found is not None
    assert found.as_tuple() == pytest.approx((0.855, 0.81, 0.9))
    assert Interval.of(found.as_tuple()) == found
    assert estimate_paired_ratio(now[:7], before[:7], 0.99) is None
    assert estimate_paired_ratio(now[:8], before[:8], 0.99) is not None
    assert estimate_paired_ratio([], [], 0.99) is None


def test_the_interval_of_pairs_holds_their_median_as_often_as_it_says():
    draw = random.Random(0)
    missed = 0
    for _ in range(2000):
        now, before = ([exp(draw.gauss(0.0, 0.3)) for _ in range(12)] for _ in range(2))
        found = estimate_paired_ratio(now, before, 0.9)
        assert found is not None
        missed += not found.low <= 1.0 <= found.high
    assert 0.01 < missed / 2000 < 0.1
