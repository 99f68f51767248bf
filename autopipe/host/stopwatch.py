"""Times of calls, and their lower quartile."""

from collections.abc import Callable, Sequence
from statistics import quantiles
from time import perf_counter


def time_call(run: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = perf_counter()
    run()
    return perf_counter() - start


def time_calls(run: Callable[[], object], count: int, seconds: float = 0.0) -> list[float]:
    """Return the times of `count` calls, and of as many more as fit into `seconds`."""
    end = perf_counter() + seconds
    times = [time_call(run) for _ in range(count)]
    while perf_counter() < end:
        times.append(time_call(run))
    return times


def compute_lower_quartile(times: Sequence[float]) -> float:
    """Return the first quartile of at least one time.

    Other programs make some calls slower, and nothing makes single ones faster.
    """
    return quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]
