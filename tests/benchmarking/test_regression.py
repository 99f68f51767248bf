import random
from collections import Counter
from itertools import product
from math import exp

import pytest

from autopipe.benchmarking.baseline import Baseline
from autopipe.benchmarking.interval import Interval
from autopipe.benchmarking.regression import check_regression, judge_intervals
from autopipe.config.gates import Regression
from tests.support.table import each_row

GATE = Regression(baseline="p.baseline.json", max=1.05)


def baseline(ours=(1.0, 1.01, 0.99), theirs=(2.0, 2.02, 1.98), version="1.0", **fields):
    competitors = {} if theirs is None else {"onnxruntime": version}
    rounds = {"autopipe": ours} | ({} if theirs is None else {"onnxruntime": theirs})
    known = {"pipeline": "p", "device": {"cpu": "x"}, "threads": 2} | fields
    return Baseline.model_validate({**known, "competitors": competitors, "rounds": rounds})


def scaled(factor, values=(1.0, 1.01, 0.99)):
    return tuple(factor * value for value in values)


def interval(low, high):
    return Interval(ratio=(low * high) ** 0.5, low=low, high=high)


@each_row(
    "intervals, outcome",
    [
        ([(0.9, 1.0)], "passed"),
        ([(1.1, 1.2)], "failed"),
        ([(1.0, 1.2)], "inconclusive"),
        ([], "inconclusive"),
        ([(0.9, 1.0), (0.8, 1.5)], "passed"),
        ([(0.9, 1.0), (1.1, 1.2)], "inconclusive"),
        ([(0.9, 1.3), (1.1, 1.2)], "inconclusive"),
        ([(1.2, 1.3), (1.1, 1.2)], "failed"),
    ],
)
def test_all_must_say_slower_and_none_may_contradict_as_fast(intervals, outcome):
    assert judge_intervals([interval(*each) for each in intervals], 1.05) == outcome


def test_a_build_that_is_as_fast_passes():
    found = check_regression(baseline(), baseline(), GATE)
    assert found.outcome == "passed"
    assert found.found.startswith("1 (0.978 to 1.02) times the baseline's time; 1 (")
    assert found.found.endswith(
        "times the baseline's time relative to onnxruntime; allowed is 1.05"
    )


def test_a_build_that_is_slower_fails():
    found = check_regression(baseline(scaled(1.2)), baseline(), GATE)
    assert (found.gate, found.outcome) == ("gates.regression", "failed")


@pytest.mark.fault("E9")
def test_a_slow_day_of_the_machine_is_no_regression():
    slow = baseline(scaled(1.5), scaled(3.0))
    found = check_regression(slow, baseline(), GATE)
    assert (found.outcome, "1.5 (" in found.found) == ("inconclusive", True)


def test_on_another_machine_only_the_ratio_counts():
    other = {"device": {"cpu": "y", "cores": 4}}
    same = check_regression(baseline(scaled(3.0), scaled(6.0), **other), baseline(), GATE)
    assert same.outcome == "passed"
    assert "time is not compared: another machine (cores, cpu)" in same.found
    slower = check_regression(baseline(scaled(3.0), scaled(5.0), **other), baseline(), GATE)
    assert slower.outcome == "failed"
    assert "times the baseline's time;" not in slower.found


def test_another_version_of_the_competitor_is_another_competitor():
    found = check_regression(baseline(scaled(1.2), version="2.0"), baseline(), GATE)
    assert found.outcome == "failed"
    assert "relative to onnxruntime is not compared: onnxruntime is 2.0, and was 1.0" in found.found
    found = check_regression(baseline(scaled(1.2)), baseline(theirs=None), GATE)
    assert (found.outcome, "and was not timed" in found.found) == ("failed", True)


@pytest.mark.fault("N5")
@pytest.mark.parametrize(
    ("now", "before", "who"),
    [(True, False, "this build"), (False, True, "the baseline"),
     (True, True, "this build and the baseline")],
)  # fmt: skip
def test_beside_other_programs_only_the_ratio_to_a_competitor_counts(now, before, who):
    for factor, outcome in ((1.0, "passed"), (2.0, "failed")):
        times = baseline(scaled(factor), disturbed=now), baseline(disturbed=before)
        found = check_regression(*times, GATE)
        assert found.outcome == outcome
        assert f"time is not compared: other programs disturbed when {who} was" in found.found
    alone = baseline(theirs=None, disturbed=now), baseline(theirs=None, disturbed=before)
    assert check_regression(*alone, GATE).outcome == "inconclusive"
    strict = GATE.model_copy(update={"on_inconclusive": "fail"})
    assert check_regression(*alone, strict).outcome == "failed"


def test_nothing_to_compare_is_inconclusive():
    other = baseline(theirs=None, device={"cpu": "y"})
    assert check_regression(other, baseline(), GATE).outcome == "inconclusive"
    found = check_regression(baseline(threads=4), baseline(), GATE)
    assert found.outcome == "inconclusive"
    assert found.found.endswith("threads were 2, and are 4; nothing is left to compare")
    found = check_regression(baseline((1.0,), (2.0,)), baseline(), GATE)
    assert (found.outcome, "a single round has no spread" in found.found) == ("inconclusive", True)


def test_who_wants_certainty_fails_what_is_inconclusive():
    strict = GATE.model_copy(update={"on_inconclusive": "fail"})
    assert check_regression(baseline(threads=4), baseline(), strict).outcome == "failed"
    assert check_regression(baseline(), baseline(), strict).outcome == "passed"


def outcomes(*, slowdown=1.0, noise=0.02, drift=0.0, rounds=5, competitor=True, count=500):
    """How often the gate says what, of builds timed with noise, on days that differ by `drift`."""
    draw = random.Random(7)

    def timed(seconds):
        day = exp(draw.gauss(0, drift))
        ours, theirs = (
            tuple(scale * day * exp(draw.gauss(0, noise)) for _ in range(rounds))
            for scale in (seconds, 2.0)
        )
        return baseline(ours, theirs if competitor else None)

    found = Counter(
        str(check_regression(timed(slowdown), timed(1.0), GATE).outcome) for _ in range(count)
    )
    return {outcome: found[outcome] / count for outcome in ("passed", "failed", "inconclusive")}


@each_row("rounds, noise", product([3, 5, 10], [0.005, 0.02, 0.1, 0.5]))
def test_equal_builds_almost_never_fail(rounds, noise):
    assert outcomes(rounds=rounds, noise=noise)["failed"] <= 0.01


def test_equal_builds_pass_where_the_noise_allows():
    assert outcomes(noise=0.02)["passed"] > 0.85
    assert outcomes(noise=0.01)["passed"] > 0.99


@pytest.mark.fault("E9")
def test_days_that_differ_do_not_fail_equal_builds():
    assert outcomes(drift=0.3)["failed"] <= 0.01
    assert outcomes(drift=0.3, competitor=False)["failed"] > 0.2, (
        "without a competitor nothing tells"
    )


def test_a_slowdown_of_a_fifth_fails():
    assert outcomes(slowdown=1.2, noise=0.02)["failed"] > 0.99
    assert outcomes(slowdown=1.2, noise=0.02, competitor=False)["failed"] > 0.99
    assert outcomes(slowdown=1.2, noise=0.02, rounds=3)["failed"] > 0.85


def test_a_slowdown_at_the_limit_seldom_fails():
    assert outcomes(slowdown=1.05, competitor=False)["failed"] <= 0.04


@pytest.mark.fault("E9")
def test_times_that_are_all_noise_do_not_tell():
    for slowdown in (1.0, 1.2):
        assert outcomes(slowdown=slowdown, noise=0.3)["inconclusive"] > 0.9
