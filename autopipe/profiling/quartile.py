"""The lower quartile of times: other load on the machine makes runs slower, never faster."""

from collections.abc import Sequence
from statistics import quantiles


def lower_quartile(times: Sequence[float]) -> float:
    """Return the lower quartile of times; of a single run, its time."""
    return quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]
