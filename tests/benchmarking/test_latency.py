import pytest
from hypothesis import given
from hypothesis import strategies as st

from autopipe.artifacts.benchmark import Latency, LatencyVerdict
from autopipe.benchmarking.latency import compare_latencies, judge_latencies, summarize_rounds

seconds = st.floats(1e-6, 1e3)
rounds = st.integers(1, 5).flatmap(
    lambda repeat: st.lists(
        st.lists(seconds, min_size=repeat, max_size=repeat), min_size=3, max_size=3
    )
)


def test_median_quartiles_and_rounds():
    found = summarize_rounds([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])
    assert (found.median, found.low, found.high, found.rounds) == (2.5, 2.0, 3.0, (2.0, 3.0))


def test_one_outlier_does_not_widen_the_spread():
    assert summarize_rounds([[1.0] * 9 + [100.0]]).high == 1.0


@pytest.mark.fault("E9")
def test_a_machine_that_changes_speed_between_rounds_widens_the_spread():
    found = summarize_rounds([[1.0] * 10, [1.0] * 10, [1.0] * 10, [2.0] * 10, [1.0] * 10])
    assert (found.median, found.low, found.high) == (1.0, 1.0, 2.0)


def test_a_single_run_is_its_own_spread():
    assert summarize_rounds([[3.0]]) == Latency(median=3.0, low=3.0, high=3.0, rounds=(3.0,))


def latency(low, high):
    middle = (low + high) / 2
    return Latency(median=middle, low=low, high=high, rounds=(middle,))


@pytest.mark.fault("E9")
@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((1, 2), (3, 4), "faster"),
        ((3, 4), (1, 2), "slower"),
        ((1, 3), (2, 4), "inconclusive"),
        ((1, 2), (2, 3), "inconclusive"),
        ((1, 4), (2, 3), "inconclusive"),
    ],
)
def test_overlapping_spreads_are_inconclusive(ours, theirs, verdict):
    assert compare_latencies(latency(*ours), latency(*theirs)).verdict == verdict


def test_the_ratio_is_that_of_the_medians_and_each_round_has_its_own():
    ours, theirs = summarize_rounds([[1.0], [2.0], [30.0]]), summarize_rounds([[2.0], [5.0], [4.0]])
    found = compare_latencies(ours, theirs)
    assert (found.ratio, found.rounds) == (0.5, (0.5, 0.4, 7.5))


@pytest.mark.fault("N3")
def test_what_was_disturbed_tells_nothing_however_far_apart_it_is():
    found = compare_latencies(latency(1, 2), latency(30, 40), disturbed=True)
    assert found.verdict == "inconclusive"


def test_a_limit_moves_the_line():
    ours, theirs = latency(3, 4), latency(1, 2)
    assert judge_latencies(ours, theirs, 1.0) is LatencyVerdict.SLOWER
    assert judge_latencies(ours, theirs, 2.0) is LatencyVerdict.INCONCLUSIVE
    assert judge_latencies(ours, theirs, 5.0) is LatencyVerdict.FASTER


@given(rounds, rounds)
def test_swapping_the_contenders_swaps_the_verdict(first, second):
    ours, theirs = summarize_rounds(first), summarize_rounds(second)
    swapped = {"faster": "slower", "slower": "faster", "inconclusive": "inconclusive"}
    verdict = compare_latencies(ours, theirs).verdict
    assert compare_latencies(theirs, ours).verdict == swapped[verdict]


@given(rounds)
def test_the_median_lies_within_the_spread(found):
    latency = summarize_rounds(found)
    assert latency.low <= latency.median <= latency.high
    assert all(latency.low <= median <= latency.high for median in latency.rounds)
